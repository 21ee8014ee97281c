#include "dataplane/native/dpdk/shared_region.h"

#include <rte_eal.h>
#include <rte_memory.h>
#include <unistd.h>

namespace switchml {

DpdkDevice::SharedRegion* DpdkDevice::SharedRegion::make(const std::shared_ptr<void>& memory, size_t bytes,
                                                         rte_device* device) {
  if (device != nullptr) {
    if (rte_eal_iova_mode() != RTE_IOVA_VA) return nullptr;  // ordinary pages have no address that a device knows
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<uintptr_t>(memory.get());
    if (rte_extmem_register(memory.get(), bytes / page * page, nullptr, 0, page) != 0) return nullptr;
    if (rte_dev_dma_map(device, memory.get(), address, bytes / page * page) != 0) {
      rte_extmem_unregister(memory.get(), bytes / page * page);
      return nullptr;
    }
    bytes = bytes / page * page;
  }
  return new SharedRegion(memory, bytes, device);
}

DpdkDevice::SharedRegion::SharedRegion(const std::shared_ptr<void>& memory, size_t bytes, rte_device* device)
    : memory_(memory), bytes_(bytes), device_(device) {
  references_.free_cb = [](void* /*payload*/, void* region) { delete static_cast<SharedRegion*>(region); };
  references_.fcb_opaque = this;
  rte_mbuf_ext_refcnt_set(&references_, 1);
}

DpdkDevice::SharedRegion::~SharedRegion() {
  if (device_ == nullptr) return;
  rte_dev_dma_unmap(device_, memory_.get(), reinterpret_cast<uintptr_t>(memory_.get()), bytes_);
  rte_extmem_unregister(memory_.get(), bytes_);
}

void DpdkDevice::SharedRegion::attach(rte_mbuf* mbuf, const uint8_t* payload, size_t bytes) {
  rte_mbuf_ext_refcnt_update(&references_, 1);
  // The driver only reads what is to be sent.
  rte_pktmbuf_attach_extbuf(mbuf, const_cast<uint8_t*>(payload), reinterpret_cast<uintptr_t>(payload),
                            static_cast<uint16_t>(bytes), &references_);
  mbuf->data_off = 0;
  mbuf->data_len = static_cast<uint16_t>(bytes);
  mbuf->pkt_len = static_cast<uint32_t>(bytes);
}

void DpdkDevice::SharedRegion::let_go() {
  if (rte_mbuf_ext_refcnt_update(&references_, static_cast<int16_t>(-1)) == 0) delete this;
}

}  // namespace switchml
