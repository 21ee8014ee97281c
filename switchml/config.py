"""The options of compilers for programs that use libswitchml: `python -m switchml.config --cflags --libs`."""

from __future__ import annotations

from pathlib import Path

import click

from switchml import _native

__all__ = ["prefix"]


def prefix() -> Path:
    """Return the folder that has include/switchml.h and lib/libswitchml.so."""
    return Path(_native.__file__).parent


@click.command()
@click.option("--cflags", is_flag=True, help="Options that find the header.")
@click.option("--libs", is_flag=True, help="Options that link with the library, and find it when the program runs.")
@click.option("--mpi", is_flag=True, help="The source of the library for MPI programs (docs/guides/mpi.md).")
@click.option("--nccl", is_flag=True, help="The plugin of NCCL (docs/guides/nccl.md).")
@click.option("--pkgconfigdir", is_flag=True, help="The folder for PKG_CONFIG_PATH.")
@click.option("--cmakedir", is_flag=True, help="The folder for CMake's switchml_DIR.")
def main(cflags: bool, libs: bool, mpi: bool, nccl: bool, pkgconfigdir: bool, cmakedir: bool) -> None:
    """Print options of compilers, or folders, for programs in C and C++ that use libswitchml."""
    library = prefix() / "lib"
    wanted = {
        str(prefix() / "share" / "switchml_mpi.c"): mpi,
        str(library / "libnccl-net-switchml.so"): nccl,
        f"-I{prefix() / 'include'}": cflags,
        f"-L{library} -Wl,-rpath,{library} -lswitchml": libs,
        str(library / "pkgconfig"): pkgconfigdir,
        str(library / "cmake" / "switchml"): cmakedir,
    }
    if not any(wanted.values()):
        raise click.UsageError("say what to print: --cflags, --libs, --mpi, --nccl, --pkgconfigdir or --cmakedir")
    click.echo(" ".join(text for text, is_wanted in wanted.items() if is_wanted))


if __name__ == "__main__":
    main(prog_name="python -m switchml.config")
