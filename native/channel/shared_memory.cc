#include "native/channel/shared_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace switchml::channel {
namespace {

constexpr size_t kHugePage = size_t{2} << 20U;
constexpr size_t kPage = 4096;

// linux/fcntl.h has it, which cannot be included together with fcntl.h. Mappings made before the seal stay writable.
constexpr int kSealFutureWrite = 0x0010;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

std::system_error failure(const char* what) { return {errno, std::generic_category(), what}; }

}  // namespace

// The memory is used over and over, so its pages are had now: a first touch costs microseconds.
bool SharedMemory::create(const char* name, size_t bytes, unsigned extra_flags) {
  fd_ = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | extra_flags);
  if (fd_ < 0) return false;
  if (ftruncate(fd_, static_cast<off_t>(bytes)) == 0) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (memory != MAP_FAILED) {
      data_ = static_cast<uint8_t*>(memory);
      bytes_ = bytes;
      return true;
    }
  }
  const int error = errno;
  release();
  errno = error;
  return false;
}

SharedMemory::SharedMemory(const char* name, size_t bytes, Others others) {
  // Reserved huge pages are there or mmap() fails; without them transparent ones are asked for.
  if (!(bytes >= kHugePage / 2 && create(name, round_up(bytes, kHugePage), MFD_HUGETLB)) &&
      !create(name, round_up(bytes, kPage), 0)) {
    throw failure("shared memory");
  }
  madvise(data_, bytes_, MADV_HUGEPAGE);
  for (size_t at = 0; at < bytes_; at += kPage) {
    *static_cast<volatile uint8_t*>(data_ + at) = 0;
  }
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | (others == Others::may_read ? kSealFutureWrite : 0) | F_SEAL_SEAL;
  if (fcntl(fd_, F_ADD_SEALS, seals) < 0) {
    const std::system_error refused = failure("sealing shared memory");
    release();
    throw refused;
  }
}

SharedMemory SharedMemory::map(int fd, Others access) {
  struct stat status{};
  if (fstat(fd, &status) < 0) throw failure("size of shared memory");
  SharedMemory mapped;
  mapped.bytes_ = static_cast<size_t>(status.st_size);
  const int protection = access == Others::may_write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = mmap(nullptr, mapped.bytes_, protection, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) throw failure("mapping shared memory");
  mapped.data_ = static_cast<uint8_t*>(memory);
  return mapped;
}

SharedMemory::~SharedMemory() { release(); }

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void SharedMemory::close_descriptor() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void SharedMemory::release() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
  close_descriptor();
}

}  // namespace switchml::channel
