// Memory of ours that DPDK's packets point into: external buffers of mbufs.
#pragma once

#include <rte_dev.h>
#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dataplane/native/dpdk/dpdk_device.h"

namespace switchml {

// Ends itself once it was let go and no packet points into it any more.
class DpdkDevice::SharedRegion {
 public:
  // `device` is what reads the memory by DMA, null where the driver copies. Returns null when it cannot reach the
  // memory (no IOMMU): payloads are then copied.
  static SharedRegion* make(const std::shared_ptr<void>& memory, size_t bytes, rte_device* device);

  bool contains(const uint8_t* payload, size_t bytes) const {
    return payload >= first() && payload + bytes <= first() + bytes_;
  }
  // Makes `bytes` at `payload` all that the mbuf holds; it holds the region until it is freed.
  void attach(rte_mbuf* mbuf, const uint8_t* payload, size_t bytes);
  void let_go();

 private:
  SharedRegion(const std::shared_ptr<void>& memory, size_t bytes, rte_device* device);
  ~SharedRegion();

  const uint8_t* first() const { return static_cast<const uint8_t*>(memory_.get()); }

  std::shared_ptr<void> memory_;
  size_t bytes_;
  rte_device* device_;
  rte_mbuf_ext_shared_info references_{};  // our own is the first
};

}  // namespace switchml
