import pytest

from switchml.common.switch_trees import ParentLink, SwitchTrees, ports_used_twice, unequal_values

PARENTS = {"l1": "s1", "l2": "s1", "s1": "core", "core": None, "l3": "s2", "s2": "core", "alone": None}


@pytest.fixture
def trees() -> SwitchTrees:
    return SwitchTrees(PARENTS, levels=3)


def test_smallest_tree(trees: SwitchTrees) -> None:
    assert trees.smallest(["l1"]) == {"l1": ""}
    assert trees.smallest(["l1", "l2"]) == {"s1": "", "l1": "s1", "l2": "s1"}
    assert trees.smallest(["s1", "l2"]) == {"s1": "", "l2": "s1"}
    assert list(trees.smallest(["l3", "l1"]).items()) == [
        ("core", ""),
        ("s2", "core"),
        ("l3", "s2"),
        ("s1", "core"),
        ("l1", "s1"),
    ]


def test_no_common_top(trees: SwitchTrees) -> None:
    with pytest.raises(ValueError, match="l1, alone are in different trees, whose tops are alone, core"):
        trees.smallest(["l1", "alone"])


def test_below_and_path(trees: SwitchTrees) -> None:
    assert trees.below("s1") == ["l1", "l2", "s1"]
    assert trees.below("l1") == ["l1"]
    assert trees.path("l3", "core") == ["l3", "s2", "core"]
    assert trees.path("alone", "alone") == ["alone"]


@pytest.mark.parametrize(
    ("parents", "words"),
    [
        ({"a": "b"}, "switch 'a': its parent 'b' is not one of a"),
        ({"a": "a"}, "switches are each other's parents: a -> a"),
        ({"x": "a", "a": "b", "b": "c", "c": "a"}, "switches are each other's parents: a -> b -> c -> a"),
        ({"a": "b", "b": "c", "c": "d", "d": None}, "the tree a -> b -> c -> d has 4 levels of switches, and 3 are"),
    ],
)
def test_what_is_no_tree(parents: dict[str, str | None], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SwitchTrees(parents, levels=3)


def test_ports_used_twice() -> None:
    assert ports_used_twice({"a": ParentLink("s", 1, 9), "b": ParentLink("s", 2, 9)}) == ""
    words = "port 1 of switch s leads to switch a and to switch b"
    assert ports_used_twice({"a": ParentLink("s", 1, 9), "b": ParentLink("s", 1, 9)}) == words
    words = "port 9 of switch s leads to switch a and to switch core"
    assert ports_used_twice({"a": ParentLink("s", 9, 1), "s": ParentLink("core", 1, 9)}) == words


def test_unequal_values() -> None:
    assert unequal_values([("a", 64), ("b", 64)]) == ""
    words = "switch a has 64 values per packet and switch c has 256"
    assert unequal_values([("a", 64), ("b", 64), ("c", 256)]) == words
