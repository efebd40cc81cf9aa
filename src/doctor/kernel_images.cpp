#include "doctor/kernel_images.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/format.h"

namespace fourfold::doctor {
namespace {

constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;
constexpr std::uint16_t kMachineCuda = 190;  // EM_CUDA
constexpr std::uint16_t kEntryPtx = 1, kEntryElf = 2;
// Bits of an entry's flags, as nvcc 13.0 sets them for -arch=sm_120a and sm_120f.
constexpr std::uint64_t kFlagArchSpecific = 1 << 20, kFlagFamilySpecific = 1 << 21;
// From this ABI on the architecture has moved one byte up in an image's e_flags.
constexpr int kAbiWithWideFlags = 8;

// What kernels that multiply FP4 are called in CUTLASS, FlashInfer and vLLM. The type's own name, e2m1, would
// not do: PyTorch's plain copy kernels carry it.
constexpr std::array<std::string_view, 5> kFp4Words{"BlockScaled", "blockscaled", "nvfp4", "NvFp4",
                                                    "mxf4nvf4"};

bool speaks_of_fp4(std::string_view name) {
  return std::any_of(kFp4Words.begin(), kFp4Words.end(),
                     [&](std::string_view word) { return name.find(word) != std::string_view::npos; });
}

// Among a program's constants, names of kernels are those the compiler has mangled; messages speak of FP4,
// too.
bool registers_fp4(std::string_view constants) {
  for (const std::string_view word : kFp4Words)
    for (auto at = constants.find(word); at != std::string_view::npos; at = constants.find(word, at + 1)) {
      const auto before = constants.rfind('\0', at);
      if (constants.substr(before == std::string_view::npos ? 0 : before + 1).starts_with("_Z")) return true;
    }
  return false;
}

// Reads that know where the file ends.
class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> data) : data_(data) {}
  std::size_t size() const { return data_.size(); }
  template <class T>
  T at(std::size_t offset) const {
    T value{};
    if (offset <= data_.size() && data_.size() - offset >= sizeof(T))
      std::memcpy(&value, data_.data() + offset, sizeof(T));
    return value;
  }
  Bytes part(std::uint64_t offset, std::uint64_t size) const {
    if (offset > data_.size()) return Bytes({});
    return Bytes(data_.subspan(offset, std::min<std::uint64_t>(size, data_.size() - offset)));
  }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_.data()), data_.size()}; }
  std::string_view text_at(std::size_t offset) const {
    const std::string_view rest = offset < size() ? text().substr(offset) : std::string_view{};
    return rest.substr(0, rest.find('\0'));
  }
  bool is_elf64() const { return text().starts_with("\177ELF") && at<std::uint8_t>(4) == 2; }

 private:
  std::span<const std::byte> data_;
};

struct Section {
  std::string_view name;
  Bytes bytes;
};

// Sections of a 64-bit ELF file, host or GPU.
std::vector<Section> sections_of(const Bytes& file) {
  const auto table = file.at<std::uint64_t>(40);
  const auto entry_bytes = file.at<std::uint16_t>(58);
  const auto count = file.at<std::uint16_t>(60), names_index = file.at<std::uint16_t>(62);
  if (entry_bytes < 64 || table >= file.size()) return {};
  const auto body = [&](std::uint64_t index) {
    const std::size_t entry = table + index * entry_bytes;
    constexpr std::uint32_t no_bits = 8;
    return file.at<std::uint32_t>(entry + 4) == no_bits
               ? Bytes({})
               : file.part(file.at<std::uint64_t>(entry + 24), file.at<std::uint64_t>(entry + 32));
  };
  const Bytes names = body(names_index);
  std::vector<Section> sections;
  for (std::uint64_t i = 0; i < count; ++i)
    sections.push_back({names.text_at(file.at<std::uint32_t>(table + i * entry_bytes)), body(i)});
  return sections;
}

// ptxas notes its options: "-arch sm_120f -m 64".
char suffix_of(std::string_view note, int sm) {
  const std::string word = "sm_" + std::to_string(sm);
  const auto found = note.find(word);
  if (found == std::string_view::npos) return '?';
  const std::size_t end = found + word.size();
  const char next = end < note.size() ? note[end] : ' ';
  return next == 'a' || next == 'f' ? next : ' ';
}

KernelImage read_cubin(const Bytes& cubin) {
  KernelImage image;
  const auto flags = cubin.at<std::uint32_t>(48);
  image.sm =
      static_cast<int>(cubin.at<std::uint8_t>(8) >= kAbiWithWideFlags ? flags >> 8 & 0xFF : flags & 0xFF);
  image.suffix = '?';
  image.has_kernels = false;
  for (const Section& section : sections_of(cubin)) {
    if (section.name == ".note.nv.tkinfo") image.suffix = suffix_of(section.bytes.text(), image.sm);
    if (!section.name.starts_with(".text.")) continue;
    image.has_kernels = true;
    image.names_fp4 |= speaks_of_fp4(section.name);
  }
  return image;
}

// One fat binary: a head, then entries with a head each.
void read_fatbin(const Bytes& bytes, bool file_names_fp4, std::vector<KernelImage>& images) {
  const auto head_bytes = bytes.at<std::uint16_t>(6);
  const Bytes entries = bytes.part(head_bytes, bytes.at<std::uint64_t>(8));
  for (std::size_t at = 0; at + 64 <= entries.size();) {
    const auto kind = entries.at<std::uint16_t>(at);
    const auto entry_head = entries.at<std::uint32_t>(at + 4);
    const auto payload_bytes = entries.at<std::uint64_t>(at + 8);
    const auto flags = entries.at<std::uint64_t>(at + 40);
    if (entry_head < 64 || payload_bytes > entries.size() || (kind != kEntryPtx && kind != kEntryElf)) return;
    KernelImage image;
    // Compressed entries cannot be looked into; what their file registers by name must do.
    image.names_fp4 = file_names_fp4;
    const Bytes payload = entries.part(at + entry_head, payload_bytes);
    if (kind == kEntryElf && payload.is_elf64()) image = read_cubin(payload);
    image.is_ptx = kind == kEntryPtx;
    image.sm = static_cast<int>(entries.at<std::uint32_t>(at + 28));
    image.suffix = (flags & kFlagArchSpecific) != 0 ? 'a' : (flags & kFlagFamilySpecific) != 0 ? 'f' : ' ';
    images.push_back(image);
    at += entry_head + payload_bytes;
  }
}

// Fat binaries lie one after another, at multiples of eight bytes.
void read_fatbins(const Bytes& bytes, bool file_names_fp4, std::vector<KernelImage>& images) {
  for (std::size_t at = 0; at + 16 <= bytes.size();) {
    const auto head_bytes = bytes.at<std::uint16_t>(at + 6);
    if (bytes.at<std::uint32_t>(at) != kFatbinMagic || head_bytes < 16) {
      at += 8;
      continue;
    }
    const auto payload_bytes = bytes.at<std::uint64_t>(at + 8);
    if (payload_bytes > bytes.size()) return;
    read_fatbin(bytes.part(at, head_bytes + payload_bytes), file_names_fp4, images);
    at += (head_bytes + payload_bytes + 7) / 8 * 8;
  }
}

void read_host_object(const Bytes& file, std::vector<KernelImage>& images) {
  const std::vector<Section> sections = sections_of(file);
  const auto is_fatbin = [](const Section& section) {
    return section.name == ".nv_fatbin" || section.name == "__nv_relfatbin";
  };
  if (std::none_of(sections.begin(), sections.end(), is_fatbin)) return;
  // Kernels are registered by name, and the names lie among the constants.
  const bool names_fp4 = std::any_of(sections.begin(), sections.end(), [](const Section& section) {
    return section.name.starts_with(".rodata") && registers_fp4(section.bytes.text());
  });
  for (const Section& section : sections)
    if (is_fatbin(section)) read_fatbins(section.bytes, names_fp4, images);
}

}  // namespace

std::vector<KernelImage> images_in(std::span<const std::byte> file) {
  std::vector<KernelImage> images;
  const Bytes bytes(file);
  if (bytes.at<std::uint32_t>(0) == kFatbinMagic)
    read_fatbins(bytes, false, images);
  else if (bytes.is_elf64() && bytes.at<std::uint16_t>(18) == kMachineCuda)
    images.push_back(read_cubin(bytes));
  else if (bytes.is_elf64())
    read_host_object(bytes, images);
  return images;
}

std::string image_name(const KernelImage& image) {
  std::string name = fourfold::format("{}_{}", image.is_ptx ? "compute" : "sm", image.sm);
  if (image.suffix != ' ') name += image.suffix;
  return name;
}

}  // namespace fourfold::doctor
