// A small program with the constructs of SwitchML's program, for the tests of the model's compiler.
#include <core.p4>
#include <tna.p4>

header frame_t { bit<8> kind; bit<8> slot; bit<16> value; }
header note_t { @padding bit<7> unused; PortId_t port; }
struct headers_t { note_t note; frame_t frame; }
struct metadata_t { bit<16> sum; bit<1> known; }
struct pair_t { bit<16> sum; bit<16> count; }

parser IngressParser(packet_in packet, out headers_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t intrinsic) {
    value_set<PortId_t>(4) noted_ports;
    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        meta.known = 0;
        transition select(intrinsic.ingress_port) { noted_ports: parse_note; default: parse_frame; }
    }
    state parse_note { packet.extract(hdr.note); transition parse_frame; }
    state parse_frame { packet.extract(hdr.frame); transition accept; }
}

control Ingress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
                in ingress_intrinsic_metadata_from_parser_t from_parser,
                inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Register<pair_t, bit<8>>(16, {1, 0}) sums;
    RegisterAction<pair_t, bit<8>, bit<16>>(sums) add = {
        void apply(inout pair_t stored, out bit<16> sum) {
            stored.sum = stored.sum + hdr.frame.value;
            stored.count = stored.count + 1;
            sum = stored.sum;
        }
    };
    Counter<bit<32>, bit<8>>(16, CounterType_t.PACKETS_AND_BYTES) kinds;
    DirectCounter<bit<32>>(CounterType_t.PACKETS_AND_BYTES) hits;
    action sum_up(PortId_t port) {
        meta.known = 1;
        meta.sum = add.execute(hdr.frame.slot);
        for_tm.ucast_egress_port = port;
        hits.count();
    }
    action refuse() { hits.count(); }
    table ports {
        key = { intrinsic.ingress_port: exact @name("port"); hdr.frame.kind: range @name("kind"); }
        actions = { sum_up; refuse; @defaultonly NoAction; }
        const default_action = NoAction();
        counters = hits;
        size = 32;
    }
    apply {
        switch (ports.apply().action_run) {
            sum_up: { hdr.frame.value = meta.sum; }
            default: { for_deparser.drop_ctl = 1; }
        }
        kinds.count(hdr.frame.kind & 15, 1);
        if (meta.known == 1 && hdr.frame.kind[0:0] == 1) { hdr.note.setValid(); hdr.note.port = intrinsic.ingress_port; }
    }
}

control IngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply { packet.emit(hdr); }
}

parser EgressParser(packet_in packet, out headers_t hdr, out metadata_t meta, out egress_intrinsic_metadata_t intrinsic) {
    state start { packet.extract(intrinsic); transition accept; }
}

control Egress(inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t intrinsic,
               in egress_intrinsic_metadata_from_parser_t from_parser,
               inout egress_intrinsic_metadata_for_deparser_t for_deparser,
               inout egress_intrinsic_metadata_for_output_port_t for_output_port) {
    apply {}
}

control EgressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                       in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply { packet.emit(hdr); }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
