// Memory of ours that DPDK's packets point into: external buffers of mbufs.
#pragma once

#include <rte_dev.h>
#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace switchml::net {

// Memory that a device reads by DMA, for as long as this is there.
class DmaMapping {
 public:
  // Returns null when the device cannot reach the memory (no IOMMU).
  static std::shared_ptr<DmaMapping> make(const std::shared_ptr<void>& memory, size_t bytes, rte_device* device);
  ~DmaMapping();
  DmaMapping(const DmaMapping&) = delete;
  DmaMapping& operator=(const DmaMapping&) = delete;

  size_t bytes() const { return bytes_; }  // whole pages

 private:
  DmaMapping(const std::shared_ptr<void>& memory, size_t bytes, rte_device* device)
      : memory_(memory), bytes_(bytes), device_(device) {}

  std::shared_ptr<void> memory_;
  size_t bytes_;
  rte_device* device_;
};

// What packets of one queue point into. Ends itself once it was let go and no packet points into it any more.
class SharedRegion {
 public:
  // `bytes` at `first`, which are there as long as `memory` is.
  static SharedRegion* make(const std::shared_ptr<void>& memory, const void* first, size_t bytes) {
    return new SharedRegion(memory, static_cast<const uint8_t*>(first), bytes);
  }

  bool contains(const uint8_t* payload, size_t bytes) const {
    return payload >= first_ && payload + bytes <= first_ + bytes_;
  }
  // Makes `bytes` at `payload` all that the mbuf holds; it holds the region until it is freed.
  void attach(rte_mbuf* mbuf, const uint8_t* payload, size_t bytes);
  void let_go();

 private:
  SharedRegion(const std::shared_ptr<void>& memory, const uint8_t* first, size_t bytes);
  ~SharedRegion() = default;

  std::shared_ptr<void> memory_;
  const uint8_t* first_;
  size_t bytes_;
  rte_mbuf_ext_shared_info references_{};  // our own is the first
};

}  // namespace switchml::net
