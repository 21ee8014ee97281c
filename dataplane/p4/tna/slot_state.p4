// SlotState holds what a contribution is compared with: the epoch, phase and worker bitmap of its slot, and whether its
// phase has values.
//
// A stateful ALU returns one word, so state from which two words are needed is kept in two registers. Their contents
// are equal, because both are always changed together in one stage.
#ifndef SWITCHML_SLOT_STATE_P4
#define SWITCHML_SLOT_STATE_P4

#include "arch.p4"
#include "../common/headers.p4"

// The slot tag: the phase and epoch that a slot holds. The epoch is as wide as the phase because the two are halves of
// one register entry.
struct slot_tag_t {
    bit<32> phase;
    bit<32> epoch;
}

control SlotState(in switchml_t contribution, inout metadata_t meta) {
    @name(".SwitchMLIngress.slot_tag")
    Register<slot_tag_t, slot_t>(SLOT_ENTRIES) slot_tag;
    @name(".SwitchMLIngress.slot_tag_2")
    Register<slot_tag_t, slot_t>(SLOT_ENTRIES) slot_tag_2;
    @name(".SwitchMLIngress.slot_bitmap")
    Register<bitmap_t, slot_t>(SLOT_ENTRIES) slot_bitmap;
    @name(".SwitchMLIngress.slot_bitmap_2")
    Register<bitmap_t, slot_t>(SLOT_ENTRIES) slot_bitmap_2;
    @name(".SwitchMLIngress.slot_filled")
    Register<filled_t, slot_t>(SLOT_ENTRIES) slot_filled;

    // Returns the phase that the slot holds afterwards.
    RegisterAction<slot_tag_t, slot_t, bit<32>>(slot_tag) enter = {
        void apply(inout slot_tag_t stored, out bit<32> phase) {
            if (stored.epoch != (bit<32>)contribution.epoch || stored.phase < contribution.phase) {
                stored.phase = contribution.phase;
                stored.epoch = (bit<32>)contribution.epoch;
            }
            phase = stored.phase;
        }
    };

    // Makes the same change, and returns the epoch if the phase is newer, else 0.
    RegisterAction<slot_tag_t, slot_t, bit<32>>(slot_tag_2) enter_2 = {
        void apply(inout slot_tag_t stored, out bit<32> epoch) {
            epoch = 0;
            if (stored.epoch != (bit<32>)contribution.epoch || stored.phase < contribution.phase) {
                stored.phase = contribution.phase;
                stored.epoch = (bit<32>)contribution.epoch;
                epoch = stored.epoch;
            }
        }
    };

    // Changes nothing, and returns the epoch if the slot holds the packet's phase, else 0.
    RegisterAction<slot_tag_t, slot_t, bit<32>>(slot_tag_2) compare_2 = {
        void apply(inout slot_tag_t stored, out bit<32> epoch) {
            epoch = 0;
            if (stored.epoch == (bit<32>)contribution.epoch && stored.phase == contribution.phase) {
                epoch = stored.epoch;
            }
        }
    };

    // These return the ranks that have contributed to this phase, including the sender.
    RegisterAction<bitmap_t, slot_t, bitmap_t>(slot_bitmap) begin_bitmap = {
        void apply(inout bitmap_t stored, out bitmap_t bitmap) {
            stored = meta.worker_bit;
            bitmap = stored;
        }
    };
    RegisterAction<bitmap_t, slot_t, bitmap_t>(slot_bitmap) join_bitmap = {
        void apply(inout bitmap_t stored, out bitmap_t bitmap) {
            stored = stored | meta.worker_bit;
            bitmap = stored;
        }
    };

    // These make the same change, and return the sender's bit as it was before.
    RegisterAction<bitmap_t, slot_t, bitmap_t>(slot_bitmap_2) begin_bitmap_2 = {
        void apply(inout bitmap_t stored) {
            stored = meta.worker_bit;
        }
    };
    RegisterAction<bitmap_t, slot_t, bitmap_t>(slot_bitmap_2) join_bitmap_2 = {
        void apply(inout bitmap_t stored, out bitmap_t seen) {
            seen = stored & meta.worker_bit;
            stored = stored | meta.worker_bit;
        }
    };

    // These record whether the phase has values. In a phase that has begun, they return what was recorded before.
    RegisterAction<filled_t, slot_t, filled_t>(slot_filled) begin_empty_action = {
        void apply(inout filled_t stored) {
            stored = 0;
        }
    };
    RegisterAction<filled_t, slot_t, filled_t>(slot_filled) begin_filled_action = {
        void apply(inout filled_t stored) {
            stored = 1;
        }
    };
    RegisterAction<filled_t, slot_t, filled_t>(slot_filled) fill_action = {
        void apply(inout filled_t stored, out filled_t before) {
            before = stored;
            stored = 1;
        }
    };
    RegisterAction<filled_t, slot_t, filled_t>(slot_filled) ask_action = {
        void apply(inout filled_t stored, out filled_t before) {
            before = stored;
        }
    };

    @hidden
    action enter_phase() {
        meta.phase_now = enter.execute(contribution.slot);
    }

    @hidden
    action enter_phase_2() {
        meta.new_epoch = enter_2.execute(contribution.slot);
    }

    @hidden
    action compare_phase() {
        meta.phase_now = contribution.phase;
        meta.new_epoch = compare_2.execute(contribution.slot);
    }

    @hidden
    action leave() {}

    @hidden
    action begin() {
        meta.phase_predicate = PHASE_NEWER;
        meta.bitmap = begin_bitmap.execute(contribution.slot);
    }

    @hidden
    action join() {
        meta.phase_predicate = PHASE_SAME;
        meta.bitmap = join_bitmap.execute(contribution.slot);
    }

    // A RESULT that comes again changes nothing either, except that it states once more whether the phase has values, which
    // must be known before the lanes: the parent says the same each time.
    @hidden
    action replace() {
        meta.phase_predicate = PHASE_REPLACED;
        meta.bitmap = join_bitmap.execute(contribution.slot);
    }

    @hidden
    action begin_2() {
        begin_bitmap_2.execute(contribution.slot);
    }

    @hidden
    action join_2() {
        meta.seen = join_bitmap_2.execute(contribution.slot);
    }

    @hidden
    action begin_empty() {
        begin_empty_action.execute(contribution.slot);
    }

    @hidden
    action begin_filled() {
        begin_filled_action.execute(contribution.slot);
    }

    @hidden
    action fill() {
        meta.filled_before = fill_action.execute(contribution.slot);
    }

    @hidden
    action ask() {
        meta.filled_before = ask_action.execute(contribution.slot);
    }

    @hidden
    table filled_table {
        key = {
            meta.new_epoch: ternary;
            meta.has_values: ternary;
            meta.from_parent: ternary;
        }
        actions = {
            leave;
            begin_empty;
            begin_filled;
            fill;
            ask;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0, _, 1): leave();
            (0, 0, _): ask();
            (0, 1, _): fill();
            (_, 0, _): begin_empty();
            (_, 1, _): begin_filled();
        }
        size = 5;
    }

    @hidden
    table bitmap_table {
        key = {
            meta.new_epoch: ternary;
            meta.from_parent: ternary;
        }
        actions = {
            leave;
            begin;
            join;
            replace;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0, 0): join();
            (_, 0): begin();
            (0, 1): leave();
            (_, 1): replace();
        }
        size = 4;
    }

    @hidden
    table bitmap_table_2 {
        key = {
            meta.new_epoch: ternary;
            meta.from_parent: ternary;
        }
        actions = {
            leave;
            begin_2;
            join_2;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0, 0): join_2();
            (_, 0): begin_2();
            (0, 1): leave();
            (_, 1): join_2();
        }
        size = 4;
    }

    apply {
        if (meta.from_parent == 1) {
            compare_phase();
        } else {
            enter_phase();
            enter_phase_2();
        }
        // A stale packet changes nothing.
        if (meta.phase_now == contribution.phase) {
            bitmap_table.apply();
            bitmap_table_2.apply();
            filled_table.apply();
        }
    }
}

#endif
