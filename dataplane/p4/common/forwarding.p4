// Forwards ordinary traffic: Ethernet frames that are not SwitchML packets.
#ifndef SWITCHML_FORWARDING_P4
#define SWITCHML_FORWARDING_P4

#include "headers.p4"
#include "own_address.p4"

control Forwarding(inout headers_t hdr, inout metadata_t meta, in PortId_t ingress_port) {
    OwnAddress() own_address;

    @name(".SwitchMLIngress.forward")
    action forward(PortId_t port) {
        meta.destination = DESTINATION_PORT;
        meta.port = port;
        meta.forwarded = 1;
    }

    @name(".SwitchMLIngress.flood")
    action flood(MulticastGroupId_t group) {
        meta.destination = DESTINATION_GROUP;
        meta.group = group;
        meta.flooded = 1;
    }

    @name(".SwitchMLIngress.drop_no_route")
    action drop_no_route() {
        meta.reason = DROP_REASON_NO_ROUTE;
    }

    @name(".SwitchMLIngress.l2_table")
    table l2_table {
        key = {
            hdr.ethernet.dst: exact @name("eth_dst");
        }
        actions = {
            forward;
            flood;
            drop_no_route;
        }
        default_action = drop_no_route();
        size = 4096;
    }

    apply {
        own_address.apply(hdr, meta, ingress_port);
        if (meta.ours == 0 && meta.reason == DROP_REASON_NONE && meta.destination == DESTINATION_NONE) {
            l2_table.apply();
        }
        // A frame is never sent back through the port it came from: its destination is on that link and has received it.
        if (meta.forwarded == 1 && meta.port == ingress_port) {
            meta.destination = DESTINATION_NONE;
            meta.reason = DROP_REASON_NO_ROUTE;
        }
    }
}

#endif
