// Files and addresses on POSIX.
#include "checkpoint/open_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace fourfold::checkpoint {

OpenFile::OpenFile(const std::filesystem::path& path) : path_(path) {
  // Nonblocking, so that a pipe instead of a file is refused instead of waited for.
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
  size_ = static_cast<std::uint64_t>(facts.st_size);
}

OpenFile::~OpenFile() { close(); }

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::move(other.path_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void OpenFile::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void OpenFile::read(std::uint64_t offset, std::span<std::byte> out) const {
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

FileAddresses::FileAddresses(std::uint64_t size, const std::filesystem::path& path)
    : size_(static_cast<std::size_t>(size)) {
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    fail_with_hint(Code::io, "check the limit of address space (ulimit -v)",
                   "{}: there are no addresses for its {} bytes: {}", path.string(), size,
                   std::strerror(errno));
  data_ = static_cast<const std::byte*>(address);
}

FileAddresses::~FileAddresses() { give_back(); }

FileAddresses::FileAddresses(FileAddresses&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

FileAddresses& FileAddresses::operator=(FileAddresses&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void FileAddresses::give_back() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace fourfold::checkpoint
