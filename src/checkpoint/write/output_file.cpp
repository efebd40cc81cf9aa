#include "checkpoint/write/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace fourfold::checkpoint {

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(Code::io, "{}: cannot be made: {}", path_.string(), std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

void OutputFile::refuse(std::string_view what, std::uint64_t offset, int reason) const {
  const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
  throw Error(Code::io,
              fourfold::format("{}: writing {} failed at byte {}: {}", path_.string(), what, offset,
                               std::strerror(reason)),
              full ? "free space on that disk (or raise its quota, or ulimit -f) and start again; what was "
                     "written has been removed"
                   : "");
}

void OutputFile::resize(std::uint64_t bytes) {
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) refuse("its size", bytes, errno);
}

void OutputFile::write(std::uint64_t offset, std::span<const std::byte> bytes, std::string_view what) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put =
        ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) refuse(what, offset + done, put == 0 ? ENOSPC : errno);
    done += static_cast<std::size_t>(put);
  }
}

void OutputFile::close() {
  if (::fsync(descriptor_) != 0 && errno != EINVAL) refuse("the rest", 0, errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) refuse("the rest", 0, errno);
}

}  // namespace fourfold::checkpoint
