#include "doctor/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace fourfold::doctor {

MappedFile::MappedFile(const std::filesystem::path& path) {
  // Nonblocking, so that a pipe in a file's place is refused instead of waited for.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(Code::io, "{}: cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat facts {};
  const bool is_file = ::fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode);
  const auto size = is_file ? static_cast<std::size_t>(facts.st_size) : 0;
  void* address = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  ::close(descriptor);
  if (!is_file || address == MAP_FAILED) fail(Code::io, "{}: cannot be mapped", path.string());
  data_ = static_cast<const std::byte*>(address);
  size_ = size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace fourfold::doctor
