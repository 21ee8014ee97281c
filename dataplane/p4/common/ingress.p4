// Processes one packet in ingress. The order suits a pipeline of stages: the decision about the slot comes first, and
// each later step tests its own condition. A branch around steps that span several stages would keep other steps out of
// those stages.
#ifndef SWITCHML_INGRESS_P4
#define SWITCHML_INGRESS_P4

#include "admission.p4"
#include "aggregation.p4"
#include "forwarding.p4"
#include "switch_address.p4"

control PacketProcessing(inout headers_t hdr, inout metadata_t meta, in PortId_t ingress_port,
                         in ParserStatus_t parser_status) {
    Admission() admission;
    SwitchAddress() switch_address;
    OwnSource() own_source;
    Summation() summation;
    Conclusion() conclusion;
    Forwarding() forwarding;

    apply {
        if (hdr.values.isValid()) {
            meta.has_values = 1;
        }
        if (hdr.udp.isValid() && hdr.udp.dst == PROTOCOL_UDP_PORT && meta.admitted == 0) {
            admission.apply(hdr, meta, ingress_port, parser_status);
        }
        switch_address.apply(meta);
        own_source.apply(hdr, meta);
        if (hdr.udp.isValid() && hdr.udp.dst == PROTOCOL_UDP_PORT) {
            meta.ours = 1;
        }
        if (!hdr.ethernet.isValid()) {
            meta.reason = DROP_REASON_RUNT;
        }
        conclusion.apply(hdr, meta, ingress_port, parser_status);
        forwarding.apply(hdr, meta, ingress_port);
        summation.apply(hdr, meta);
    }
}

#endif
