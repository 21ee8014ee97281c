// The loss simulator drops packets on purpose, so that recovery can be tested where no link loses packets.
//
// It acts at the edge of the switch, like a bad cable: a packet lost in ingress reaches no other table, and a packet
// lost in egress has been counted as aggregated, completed or resent.
//
// The target provides the control LossDraw, which draws random numbers.
#ifndef SWITCHML_LOSS_P4
#define SWITCHML_LOSS_P4

#include "headers.p4"

// A packet is lost if a random 32-bit number is below the threshold; 0xFFFFFFFF loses every packet.
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

// Egress sees each copy of a multicast packet, so each copy is lost or kept independently.
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
