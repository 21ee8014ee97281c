// BMv2's architecture under TNA's names, so that common/ can be written once.
#ifndef SWITCHML_ARCH_P4
#define SWITCHML_ARCH_P4

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

// PortId_t is v1model's own.
typedef bit<16> MulticastGroupId_t;
typedef bit<16> ReplicationId_t;
typedef bit<64> bitmap_t;       // one bit for each rank of a job
typedef bit<1> filled_t;        // 1: some rank has brought values to the phase
typedef bit<1> ParserStatus_t;  // 0: the parser came to its end

const bit<32> WORKER_ENTRIES = 4096;

// The counter of a table's entries, and what an action says to count.
#define DIRECT_COUNTER direct_counter(CounterType.packets_and_bytes)
#define COUNT_ENTRY(name)

// What headers_t and metadata_t hold for this target alone.
#define TARGET_HEADERS
#define TARGET_METADATA

// Whether a packet may leave longer than it came. BMv2 ends itself when one grows by more than 512 bytes.
#define CAN_GROW (4 * VALUES <= 512)

#endif
