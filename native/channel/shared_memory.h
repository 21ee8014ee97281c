// Memory that processes share: a sealed memfd without a name, of huge pages where there are any, touched beforehand.
#pragma once

#include <cstddef>
#include <cstdint>

namespace switchml::channel {

// One mapping of a memfd.
class SharedMemory {
 public:
  enum class Others : uint8_t { may_write, may_read };

  SharedMemory() = default;
  // Makes new memory of at least `bytes`, zeros, which can neither shrink nor grow; `others` is what the processes may
  // do that get its descriptor. Throws std::system_error.
  SharedMemory(const char* name, size_t bytes, Others others);
  // Maps what a descriptor, which remains the caller's, stands for. Throws std::system_error.
  static SharedMemory map(int fd, Others access);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // The descriptor of memory that was made here, until close_descriptor(); else -1.
  int fd() const { return fd_; }
  void close_descriptor();

 private:
  bool create(const char* name, size_t bytes, unsigned extra_flags);
  void release();

  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  int fd_ = -1;
};

}  // namespace switchml::channel
