// Decides at random whether the loss simulator drops a packet.
#ifndef SWITCHML_LOSS_DRAW_P4
#define SWITCHML_LOSS_DRAW_P4

#include "arch.p4"
#include "../common/types.p4"

control LossDraw(inout metadata_t meta, in bit<32> threshold) {
    bit<32> number;

    apply {
        // The largest number is never drawn, so that the largest threshold loses every packet.
        random(number, 32w0, 32w0xFFFFFFFE);
        if (number < threshold) {
            meta.reason = DROP_REASON_INJECTED_LOSS;
        }
    }
}

#endif
