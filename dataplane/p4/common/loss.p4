// The loss simulator: packets that are dropped on purpose, so that recovery can be tried where no link loses any.
//
// It is applied at the very edge of the switch, as a bad cable would be: a packet lost at ingress meets no other table,
// and what egress loses has been counted as aggregated, completed or resent.
//
// The target brings the control that draws random numbers, under the name LossDraw.
#ifndef SWITCHML_LOSS_P4
#define SWITCHML_LOSS_P4

#include "headers.p4"

// threshold: what a random 32-bit number must be below for the packet to be lost. 0xFFFFFFFF loses every packet.
action lose(inout bit<32> threshold_of_port, bit<32> threshold) {
    threshold_of_port = threshold;
}

control IngressLoss(inout metadata_t meta, in PortId_t ingress_port) {
    LossDraw() loss_draw;

    bit<32> threshold_of_port;

    @name(".SwitchMLIngress.loss_ingress_table")
    table loss_ingress_table {
        key = {
            ingress_port: exact @name("port");
        }
        actions = {
            lose(threshold_of_port);
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 512;
    }

    apply {
        threshold_of_port = 0;
        loss_ingress_table.apply();
        if (threshold_of_port != 0) {
            loss_draw.apply(meta, threshold_of_port);
        }
    }
}

// Egress sees each copy of a multicast packet, and so loses each on its own.
control EgressLoss(inout metadata_t meta, in PortId_t egress_port) {
    LossDraw() loss_draw;

    bit<32> threshold_of_port;

    @name(".SwitchMLEgress.loss_egress_table")
    table loss_egress_table {
        key = {
            egress_port: exact @name("port");
        }
        actions = {
            lose(threshold_of_port);
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 512;
    }

    apply {
        threshold_of_port = 0;
        loss_egress_table.apply();
        if (threshold_of_port != 0) {
            loss_draw.apply(meta, threshold_of_port);
        }
    }
}

#endif
