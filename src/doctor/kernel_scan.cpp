#include "doctor/kernel_scan.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "doctor/kernel_images.h"

namespace fourfold::doctor {
namespace {

namespace fs = std::filesystem;
using Seconds = std::int64_t;  // since 1970

// FlashInfer's fused MoE has its device-side waits since this day (FlashInfer#2913); 2026-04-01.
constexpr Seconds kDependentLaunchFix = 1'775'001'600;

// Folders in which engines keep what they compiled.
constexpr std::array<std::string_view, 6> kCacheFolders{".cache",           "cached_ops",   ".triton",
                                                        "torch_extensions", "ComputeCache", "torchinductor"};

bool is_in_cache(const fs::path& path) {
  return std::any_of(path.begin(), path.end(), [](const fs::path& part) {
    return std::find(kCacheFolders.begin(), kCacheFolders.end(), part.string()) != kCacheFolders.end();
  });
}

// Whether an object that holds a plain image also holds one with the FP4 instruction for the same chip. Then
// the plain one is of kernels that need no more: NVIDIA's own libraries are built so.
bool has_suffixed(const std::vector<KernelImage>& images, int sm) {
  return std::any_of(images.begin(), images.end(), [&](const KernelImage& image) {
    return !image.is_ptx && ((image.sm == sm && (image.suffix == 'a' || image.suffix == 'f')) ||
                             (image.sm / 10 == sm / 10 && image.sm < sm && image.suffix == 'f'));
  });
}

// A file mapped for reading: a library of gigabytes of which a few headers are looked at.
//
// Limit: whoever makes the file shorter meanwhile ends this process when it touches what is lost. A scan
// takes seconds, and nothing is served by this process.
class MappedFile {
 public:
  // Throws io.
  explicit MappedFile(const std::filesystem::path& path) {
    // Nonblocking, so that a pipe instead of a file is refused instead of waited for.
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
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

bool may_hold_kernels(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".so") || name.find(".so.") != std::string::npos || name.ends_with(".cubin") ||
         name.ends_with(".fatbin") || name.ends_with(".o");
}

Seconds changed(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return 0;
  // g++ 12 has no clock_cast for this clock; the two clocks' difference now does as well.
  const auto age = fs::file_time_type::clock::now() - time;
  const auto when = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::seconds>(age);
  return std::chrono::duration_cast<std::chrono::seconds>(when.time_since_epoch()).count();
}

class Scan {
 public:
  void walk(const fs::path& folder) {
    std::error_code error;
    if (!fs::exists(folder, error)) fail(Code::io, "--scan: there is no {}", folder.string());
    if (fs::is_regular_file(folder, error)) return read(folder, folder.parent_path());
    // Links are not followed: an environment links to the same libraries many times.
    fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
    for (; !error && at != end; at.increment(error)) {
      std::error_code ignored;
      if (at->is_regular_file(ignored) && !at->is_symlink(ignored) && may_hold_kernels(at->path()))
        read(at->path(), folder);
    }
  }

  void finish(Facts& facts) {
    facts.set("scan.given", true);
    for (const char* name :
         {"files", "objects", "images", "ptx", "sm12x", "sm120", "sm120a", "sm120f", "sm121", "sm121a",
          "sm121f", "only_120a", "plain_fp4", "suffix_unknown", "cached_before_fix", "unreadable"})
      facts.set(std::string("scan.") + name, counts_[name]);
    facts.set("scan.cached_older", std::count_if(cached_.begin(), cached_.end(),
                                                 [&](Seconds when) { return when < newest_library_; }));
    for (const auto& [name, file] : first_) facts.set("scan." + name + "_file", file);
  }

 private:
  void read(const fs::path& path, const fs::path& folder) {
    ++counts_["files"];
    std::vector<KernelImage> images;
    try {
      const MappedFile file(path);
      images = images_in(file.bytes());
    } catch (const Error&) {
      ++counts_["unreadable"];
      return;
    }
    // Every linked program carries an image without kernels; it says nothing.
    std::erase_if(images, [](const KernelImage& image) { return !image.has_kernels; });
    if (images.empty()) return;
    ++counts_["objects"];
    const std::string shown = path.lexically_relative(folder).string();
    bool is_sm12x = false;
    for (const KernelImage& image : images) {
      count(image, shown, has_suffixed(images, image.sm));
      is_sm12x |= !image.is_ptx && image.sm / 10 == 12;
    }
    // Nothing in it that a GPU of 12.1 would load.
    if (is_sm12x && std::none_of(images.begin(), images.end(), [](const KernelImage& image) {
          return !image.is_ptx && image.sm / 10 == 12 && !(image.sm == 120 && image.suffix == 'a');
        })) {
      ++counts_["only_120a"];
      first_.try_emplace("only_120a", shown);
    }
    take_age(path, shown, is_sm12x);
  }

  void count(const KernelImage& image, const std::string& shown, bool has_better) {
    if (image.is_ptx) {
      ++counts_["ptx"];
      return;
    }
    ++counts_["images"];
    if (image.sm / 10 != 12) return;
    ++counts_["sm12x"];
    if (image.suffix == '?') {
      ++counts_["suffix_unknown"];
      return;
    }
    std::string name = "sm" + std::to_string(image.sm);
    if (image.suffix != ' ') name += image.suffix;
    ++counts_[name];
    if (image.suffix != ' ' || !image.names_fp4 || has_better) return;
    ++counts_["plain_fp4"];
    first_.try_emplace("plain_fp4", shown);
  }

  void take_age(const fs::path& path, const std::string& shown, bool is_sm12x) {
    const Seconds when = changed(path);
    if (!is_in_cache(path)) {
      newest_library_ = std::max(newest_library_, when);
      return;
    }
    cached_.push_back(when);
    if (is_sm12x && when < kDependentLaunchFix && path.string().find("flashinfer") != std::string::npos) {
      ++counts_["cached_before_fix"];
      first_.try_emplace("cached_before_fix", shown);
    }
  }

  std::map<std::string, int> counts_;
  std::map<std::string, std::string> first_;
  std::vector<Seconds> cached_;
  Seconds newest_library_ = 0;
};

}  // namespace

void scan_kernels(const std::vector<fs::path>& folders, Facts& facts) {
  Scan scan;
  for (const fs::path& folder : folders) scan.walk(folder);
  scan.finish(facts);
}

}  // namespace fourfold::doctor
