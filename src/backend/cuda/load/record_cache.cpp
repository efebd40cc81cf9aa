#include "backend/cuda/load/record_cache.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/format.h"
#include "base/parallel.h"

namespace fourfold::backend::cuda {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint32_t kVersion = 3;  // of records, order of pieces, or this file
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::array<char, 16> kMagic{'f', 'o', 'u', 'r', 'f', 'o', 'l', 'd',
                                      ' ', 'r', 'e', 'c', 'o', 'r', 'd', 's'};

struct Header {
  std::array<char, 16> magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint64_t headers, samples, times;  // checkpoint::Identity
  std::uint64_t dense;
  std::uint64_t entry_count;
  std::uint64_t sum_count;
  std::uint64_t table_offset;
  std::uint64_t table_sum;
  std::uint64_t header_sum;  // of what stands before it
};
static_assert(sizeof(Header) == 24 + 9 * 8, "no padding");

std::uint64_t sum_of(const Header& header) {
  return checksum(std::as_bytes(std::span(&header, 1)).first(sizeof(Header) - 8));
}
std::uint64_t sum_of(std::string_view name) { return checksum(std::as_bytes(std::span(name))); }
constexpr std::uint64_t to_page(std::uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}
constexpr std::uint64_t blocks_of(std::uint64_t bytes) {
  return (bytes + kCacheBlockBytes - 1) / kCacheBlockBytes;
}
std::string_view name_of(DenseWeights dense) { return dense ? format_name(*dense) : "keep"; }
constexpr std::uint64_t kForW4a4 = 0x100;  // beside the number of the dense weights
// As the header has it.
std::uint64_t number_of(const CacheKey& key) {
  const std::uint64_t order = key.for_w4a4 ? kForW4a4 : 0;
  if (!key.dense) return order;
  switch (*key.dense) {
    case WeightFormat::fp8: return order + 1;
    case WeightFormat::nvfp4: return order + 2;
    case WeightFormat::bf16:
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;
  }
  fail(Code::internal, "no packed copy has weights quantised to {}", format_name(*key.dense));
}

}  // namespace

std::filesystem::path cache_file(const std::filesystem::path& cache, const std::filesystem::path& model,
                                 DenseWeights dense, bool for_w4a4) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(model, ignored);
  const std::string name = (whole.has_filename() ? whole : whole.parent_path()).filename().string();
  return cache / fourfold::format("{}.{}{}.records", name.empty() ? "model" : name, name_of(dense),
                                  for_w4a4 ? ".w4a4" : "");
}

CacheReader::CacheReader(const std::filesystem::path& path, const CacheKey& key) : file_(path) {
  const std::uint64_t size = file_.size();
  Header header{};
  if (size < kPageBytes) refuse(fourfold::format("it has {} bytes, fewer than its header", size));
  file_.read(0, std::as_writable_bytes(std::span(&header, 1)));
  if (header.magic != kMagic) refuse("it is not a file of packed records");
  if (header.byte_order != kByteOrder || header.version != kVersion)
    refuse(fourfold::format("it is of version {}; this program reads version {}", header.version, kVersion));
  if (header.header_sum != sum_of(header)) refuse("its header is damaged");
  if ((header.dense & kForW4a4) != (number_of(key) & kForW4a4))
    refuse(fourfold::format("it was made for {} activations of routed experts; these are {}",
                            key.for_w4a4 ? "16-bit" : "FP4", key.for_w4a4 ? "FP4" : "16-bit"));
  if (header.dense != number_of(key))
    refuse(fourfold::format("it was not made with --dense {}", name_of(key.dense)));
  const checkpoint::Identity made_from{header.headers, header.samples, header.times};
  if (const auto what = checkpoint::difference(made_from, key.identity); !what.empty())
    refuse(fourfold::format("it was made from another checkpoint: {}", what));
  const std::uint64_t most = size / 8;
  const bool fits = header.entry_count <= most && header.sum_count <= most && header.table_offset <= size &&
                    header.table_offset + 16 * header.entry_count + 8 * header.sum_count == size;
  if (!fits) refuse(fourfold::format("it has {} bytes, not what its header says", size));
  read_table(header.entry_count, header.sum_count, header.table_offset, header.table_sum);
}

void CacheReader::read_table(std::uint64_t entry_count, std::uint64_t sum_count, std::uint64_t table_offset,
                             std::uint64_t table_sum) {
  entries_.resize(entry_count);
  sums_.resize(sum_count);
  const auto entry_bytes = std::as_writable_bytes(std::span(entries_));
  const auto sum_bytes = std::as_writable_bytes(std::span(sums_));
  file_.read(table_offset, entry_bytes);
  file_.read(table_offset + entry_bytes.size(), sum_bytes);
  if (checksum(sum_bytes, checksum(entry_bytes)) != table_sum) refuse("its table is damaged");
  std::uint64_t offset = kPageBytes, blocks = 0;
  for (const Entry& entry : entries_) {
    if (entry.bytes > table_offset - offset) refuse("its table does not fit the file");
    piece_bytes_ += entry.bytes;
    blocks += blocks_of(entry.bytes);
    offset = to_page(offset + entry.bytes);
    if (offset > table_offset) refuse("its table does not fit the file");
  }
  if (offset != table_offset || blocks != sum_count) refuse("its table does not fit the file");
  next_offset_ = kPageBytes;
}

void CacheReader::refuse(std::string_view why) const {
  fail_with_hint(Code::bad_checkpoint,
                 "--rebuild-cache makes it anew from the checkpoint; without --cache it is not looked at.",
                 "{}: the packed copy cannot be used: {}", path().string(), why);
}

CacheReader::Piece CacheReader::take(std::string_view name, std::uint64_t bytes) {
  if (next_ >= entries_.size() || entries_[next_].name_sum != sum_of(name) || entries_[next_].bytes != bytes)
    refuse(fourfold::format("piece {} of {} is not {} with {} bytes", next_, entries_.size(), name,
                            with_commas(static_cast<long long>(bytes))));
  const Piece piece{next_offset_, bytes, next_sum_};
  ++next_;
  next_offset_ = to_page(next_offset_ + bytes);
  next_sum_ += blocks_of(bytes);
  return piece;
}

void CacheReader::read(const Piece& piece, std::uint64_t offset, std::span<std::byte> to) const {
  check(offset % kCacheBlockBytes == 0 && offset + to.size() <= piece.bytes, "blocks of the piece are read",
        offset, to.size(), piece.bytes);
  for (std::uint64_t at = 0; at < to.size(); at += kCacheBlockBytes) {
    const auto block = to.subspan(at, std::min<std::uint64_t>(kCacheBlockBytes, to.size() - at));
    file_.read(piece.offset + offset + at, block);
    if (checksum(block) != sums_[piece.first_sum + (offset + at) / kCacheBlockBytes])
      refuse(fourfold::format("the {} bytes at {} are damaged", block.size(), piece.offset + offset + at));
  }
}

CacheWriter::CacheWriter(std::filesystem::path path, const CacheKey& key, std::uint64_t bytes)
    : path_(std::move(path)), partial_(path_), key_(key) {
  std::error_code problem;
  std::filesystem::create_directories(path_.parent_path(), problem);
  if (problem) fail(Code::io, "{} cannot be made: {}", path_.parent_path().string(), problem.message());
  const std::filesystem::space_info space = std::filesystem::space(path_.parent_path(), problem);
  if (!problem && space.available < bytes)
    fail(Code::io, "{}: needs {} bytes; {} are free on that disk", path_.string(),
         with_commas(static_cast<long long>(bytes)), with_commas(static_cast<long long>(space.available)));
  partial_ += fourfold::format(".partial-{}", static_cast<long>(::getpid()));
  std::filesystem::remove(partial_, problem);  // of a process that had this number and was killed
  file_.emplace(partial_);
  at_ = kPageBytes;
}

CacheWriter::~CacheWriter() {
  std::error_code ignored;
  if (file_) std::filesystem::remove(partial_, ignored);
}

void CacheWriter::begin(std::string_view name, std::uint64_t bytes) {
  check(left_ == 0, "the piece before is complete", left_);
  at_ = to_page(at_);
  left_ = bytes;
  entries_.insert(entries_.end(), {sum_of(name), bytes});
}

void CacheWriter::write(std::span<const std::byte> part) {
  check(part.size() <= left_ && (part.size() == left_ || part.size() % kCacheBlockBytes == 0),
        "a piece is written in whole blocks", part.size(), left_);
  const std::size_t first = sums_.size();
  sums_.resize(first + blocks_of(part.size()));
  parallel_for(static_cast<std::int64_t>(blocks_of(part.size())), 1, [&](std::int64_t begin, std::int64_t) {
    const auto block = static_cast<std::uint64_t>(begin);
    const std::uint64_t offset = block * kCacheBlockBytes;
    const auto bytes = part.subspan(offset, std::min(kCacheBlockBytes, part.size() - offset));
    sums_[first + block] = checksum(bytes);
    file_->write(at_ + offset, bytes, "packed records");
  });
  at_ += part.size();
  left_ -= part.size();
}

void CacheWriter::publish() {
  check(left_ == 0, "the last piece is complete", left_);
  const std::uint64_t table_offset = to_page(at_);
  const auto entry_bytes = std::as_bytes(std::span(entries_)), sum_bytes = std::as_bytes(std::span(sums_));
  file_->write(table_offset, entry_bytes, "the table of pieces");
  file_->write(table_offset + entry_bytes.size(), sum_bytes, "the table of checksums");
  Header header{kMagic,
                kVersion,
                kByteOrder,
                key_.identity.headers,
                key_.identity.samples,
                key_.identity.times,
                number_of(key_),
                entries_.size() / 2,
                sums_.size(),
                table_offset,
                checksum(sum_bytes, checksum(entry_bytes)),
                0};
  header.header_sum = sum_of(header);
  file_->write(0, std::as_bytes(std::span(&header, 1)), "the header");
  file_->close();
  std::error_code problem;
  std::filesystem::rename(partial_, path_, problem);
  if (problem)
    fail(Code::io, "{} cannot be renamed to {}: {}", partial_.string(), path_.string(), problem.message());
  file_.reset();
}

}  // namespace fourfold::backend::cuda
