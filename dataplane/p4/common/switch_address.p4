// Looks up the switch's own addresses, and detects packets that claim to come from them.
#ifndef SWITCHML_SWITCH_ADDRESS_P4
#define SWITCHML_SWITCH_ADDRESS_P4

#include "headers.p4"

control SwitchAddress(inout metadata_t meta) {
    @name(".SwitchMLIngress.set_switch_address")
    action set_switch_address(mac_t mac, ipv4_t ip) {
        meta.switch_mac = mac;
        meta.switch_ip = ip;
    }

    // The table has no key: the controller sets the default action once for each switch.
    @name(".SwitchMLIngress.switch_address_table")
    table switch_address_table {
        key = {}
        actions = {
            set_switch_address;
        }
        default_action = set_switch_address(0, 0);
        size = 1;
    }

    @hidden
    action mark_set(bit<1> mac, bit<1> ip) {
        meta.switch_mac_set = mac;
        meta.switch_ip_set = ip;
    }

    // An address that is not set yet must match no packet: DHCP clients use 0.0.0.0 as their source.
    @hidden
    table address_set_table {
        key = {
            meta.switch_mac: ternary;
            meta.switch_ip: ternary;
        }
        actions = {
            mark_set;
        }
        const default_action = mark_set(1, 1);
        const entries = {
            (0, 0): mark_set(0, 0);
            (0, _): mark_set(0, 1);
            (_, 0): mark_set(1, 0);
        }
        size = 3;
    }

    apply {
        switch_address_table.apply();
        address_set_table.apply();
    }
}

// Compares the MAC address in two parts, because a stage compares at most 32 bits at a time.
control OwnSource(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.switch_mac_set == 1 && hdr.ethernet.src[47:16] == meta.switch_mac[47:16]) {
            if (hdr.ethernet.src[15:0] == meta.switch_mac[15:0]) {
                meta.own_mac_source = 1;
            }
        }
        if (meta.switch_ip_set == 1 && hdr.ipv4.isValid() && hdr.ipv4.src == meta.switch_ip) {
            meta.own_ip_source = 1;
        }
    }
}

#endif
