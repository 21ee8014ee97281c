#include "native/net/dpdk/shared_region.h"

#include <rte_eal.h>
#include <rte_memory.h>
#include <unistd.h>

namespace switchml::net {

std::shared_ptr<DmaMapping> DmaMapping::make(const std::shared_ptr<void>& memory, size_t bytes, rte_device* device) {
  if (rte_eal_iova_mode() != RTE_IOVA_VA) return nullptr;  // a device cannot address ordinary pages without an IOMMU
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t whole = bytes / page * page;
  if (rte_extmem_register(memory.get(), whole, nullptr, 0, page) != 0) return nullptr;
  if (rte_dev_dma_map(device, memory.get(), reinterpret_cast<uintptr_t>(memory.get()), whole) != 0) {
    rte_extmem_unregister(memory.get(), whole);
    return nullptr;
  }
  return std::shared_ptr<DmaMapping>(new DmaMapping(memory, whole, device));
}

DmaMapping::~DmaMapping() {
  rte_dev_dma_unmap(device_, memory_.get(), reinterpret_cast<uintptr_t>(memory_.get()), bytes_);
  rte_extmem_unregister(memory_.get(), bytes_);
}

SharedRegion::SharedRegion(const std::shared_ptr<void>& memory, const uint8_t* first, size_t bytes)
    : memory_(memory), first_(first), bytes_(bytes) {
  references_.free_cb = [](void* /*payload*/, void* region) { delete static_cast<SharedRegion*>(region); };
  references_.fcb_opaque = this;
  rte_mbuf_ext_refcnt_set(&references_, 1);
}

void SharedRegion::attach(rte_mbuf* mbuf, const uint8_t* payload, size_t bytes) {
  rte_mbuf_ext_refcnt_update(&references_, 1);
  // The driver only reads the payload.
  rte_pktmbuf_attach_extbuf(mbuf, const_cast<uint8_t*>(payload), reinterpret_cast<uintptr_t>(payload),
                            static_cast<uint16_t>(bytes), &references_);
  mbuf->data_off = 0;
  mbuf->data_len = static_cast<uint16_t>(bytes);
  mbuf->pkt_len = static_cast<uint32_t>(bytes);
}

void SharedRegion::let_go() {
  if (rte_mbuf_ext_refcnt_update(&references_, static_cast<int16_t>(-1)) == 0) delete this;
}

}  // namespace switchml::net
