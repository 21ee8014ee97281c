// Memory outside of DPDK's pools that its packets point into: external buffers of mbufs.
#pragma once

#include <rte_dev.h>
#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace switchml::net {

// A mapping of memory that a device reads by DMA; the destructor removes it.
class DmaMapping {
 public:
  // Returns null if the device cannot reach the memory (no IOMMU).
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

// A range of memory that packets of one queue point into. It deletes itself after let_go(), once no packet points into
// it any more.
class SharedRegion {
 public:
  // Makes a region of `bytes` at `first`; `memory` keeps them alive.
  static SharedRegion* make(const std::shared_ptr<void>& memory, const void* first, size_t bytes) {
    return new SharedRegion(memory, static_cast<const uint8_t*>(first), bytes);
  }

  bool contains(const uint8_t* payload, size_t bytes) const {
    return payload >= first_ && payload + bytes <= first_ + bytes_;
  }
  // Makes `bytes` at `payload` the contents of the mbuf, which keeps the region until it is freed.
  void attach(rte_mbuf* mbuf, const uint8_t* payload, size_t bytes);
  void let_go();

 private:
  SharedRegion(const std::shared_ptr<void>& memory, const uint8_t* first, size_t bytes);
  ~SharedRegion() = default;

  std::shared_ptr<void> memory_;
  const uint8_t* first_;
  size_t bytes_;
  rte_mbuf_ext_shared_info references_{};  // the first one is the owner's, until let_go()
};

}  // namespace switchml::net
