// File mapping on POSIX.
#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace fourfold::checkpoint {
namespace {

struct Pages {
  void* begin;
  std::size_t bytes;
};

// The pages that hold any byte of the range. The mapping starts on a page, so this never leaves it to the
// left; to the right it ends within the last page, which belongs to the mapping as a whole.
Pages pages_of(std::span<const std::byte> range) {
  static const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data()) / page_bytes * page_bytes;
  const auto end = reinterpret_cast<std::uintptr_t>(range.data()) + range.size();
  return {reinterpret_cast<void*>(begin), end - begin};
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // Nonblocking, so that a pipe in a file's place is refused instead of waited for.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(Code::io, "{}: cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat facts {};
  const bool examined = ::fstat(descriptor_, &facts) == 0;
  const int reason = errno;
  if (!examined || !S_ISREG(facts.st_mode)) {
    close();
    if (!examined) fail(Code::io, "{}: cannot be examined: {}", path.string(), std::strerror(reason));
    fail(Code::io, "{}: is not a regular file", path.string());
  }
  size_ = static_cast<std::size_t>(facts.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (address == MAP_FAILED) {
    const int map_reason = errno;
    const std::size_t wanted = std::exchange(size_, 0);
    close();
    fail_with_hint(Code::io, "check the limit of address space (ulimit -v)",
                   "{}: {} bytes cannot be mapped: {}", path.string(), wanted, std::strerror(map_reason));
  }
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() { close(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::move(other.path_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void MappedFile::close() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) ::close(descriptor_);
  data_ = nullptr;
  descriptor_ = -1;
}

void MappedFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t have = 0;
  while (have < out.size()) {
    const ssize_t got =
        ::pread(descriptor_, out.data() + have, out.size() - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(Code::io, "{}: reading failed at byte {}: {}", path_.string(), offset + have,
           std::strerror(errno));
    if (got == 0)
      fail_with_hint(
          Code::io, "the file has been changed since it was opened; start again when it is complete",
          "{}: ended at byte {}; it had {} bytes when it was opened", path_.string(), offset + have, size_);
    have += static_cast<std::size_t>(got);
  }
}

void MappedFile::prefetch(std::span<const std::byte> range) const {
  check(contains(range), "the range lies in the mapping", range.size(), size_);
  if (range.empty()) return;
  const Pages pages = pages_of(range);
  ::madvise(pages.begin, pages.bytes, MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> range) const {
  check(contains(range), "the range lies in the mapping", range.size(), size_);
  if (range.empty()) return;
  const Pages pages = pages_of(range);
  ::madvise(pages.begin, pages.bytes, MADV_DONTNEED);
}

}  // namespace fourfold::checkpoint
