// The switch's own addresses, and whether a packet pretends to come from them.
#ifndef SWITCHML_SWITCH_ADDRESS_P4
#define SWITCHML_SWITCH_ADDRESS_P4

#include "headers.p4"

control SwitchAddress(in headers_t hdr, inout metadata_t meta) {
    @name(".SwitchMLIngress.set_switch_address")
    action set_switch_address(mac_t mac, ipv4_t ip) {
        meta.switch_mac = mac;
        meta.switch_ip = ip;
    }

    // No key: the controller sets the default action once for each switch.
    @name(".SwitchMLIngress.switch_address_table")
    table switch_address_table {
        key = {}
        actions = {
            set_switch_address;
        }
        default_action = set_switch_address(0, 0);
        size = 1;
    }

    apply {
        switch_address_table.apply();
        meta.own_source = 0;
        // An address that is not set yet is nobody's: 0.0.0.0 is a source that DHCP clients use.
        if (meta.switch_mac != 0 && hdr.ethernet.src == meta.switch_mac) {
            meta.own_source = 1;
        } else if (meta.switch_ip != 0 && hdr.ipv4.isValid() && hdr.ipv4.src == meta.switch_ip) {
            meta.own_source = 1;
        }
    }
}

#endif
