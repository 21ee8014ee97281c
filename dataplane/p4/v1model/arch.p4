// BMv2's architecture under TNA's names, so that common/ can be written once.
#ifndef SWITCHML_ARCH_P4
#define SWITCHML_ARCH_P4

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

// PortId_t is v1model's own.
typedef bit<16> MulticastGroupId_t;
typedef bit<16> ReplicationId_t;

#endif
