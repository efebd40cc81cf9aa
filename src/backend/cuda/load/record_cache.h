// A packed copy of a checkpoint: its records as they lie on the machine, so that the next start only copies.
// The same on every chip that multiplies alike.
//
//   0        header, 4,096 bytes: version, whose copy it is, how it was quantised, sizes, checksums
//   4,096    the pieces, each from a multiple of 4,096 on
//   then     the table: for each piece the checksum of its name and its bytes; a checksum for every MiB
//
// Written under another name, which it takes at the end: a file with the right name is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cuda/load/load_options.h"
#include "checkpoint/identity.h"
#include "checkpoint/open_file.h"
#include "checkpoint/write/output_file.h"

namespace fourfold::backend::cuda {

inline constexpr std::uint64_t kCacheBlockBytes = std::uint64_t{1} << 20;

// What a copy must agree with.
struct CacheKey {
  checkpoint::Identity identity;
  DenseWeights dense = std::nullopt;
  bool for_w4a4 = false;  // experts in the order the FP4 instruction reads
};

// The file in a cache's folder for the checkpoint in `model`: "Qwen3.5-35B-A3B.fp8.records", and
// "Qwen3.5-35B-A3B.fp8.w4a4.records" where experts are packed for W4A4.
std::filesystem::path cache_file(const std::filesystem::path& cache, const std::filesystem::path& model,
                                 DenseWeights dense, bool for_w4a4 = false);

class CacheReader {
 public:
  // Throws bad_checkpoint for a file that is no whole copy of that checkpoint, with what is wrong and what to
  // do about it; io.
  CacheReader(const std::filesystem::path& path, const CacheKey& key);

  const std::filesystem::path& path() const { return file_.path(); }
  std::uint64_t piece_bytes() const { return piece_bytes_; }  // of all pieces

  struct Piece {
    std::uint64_t offset = 0;  // in the file
    std::uint64_t bytes = 0;
    std::size_t first_sum = 0;
  };
  // The next piece, which must be this one.
  Piece take(std::string_view name, std::uint64_t bytes);
  // From `offset`, a multiple of the block size, whole blocks or up to the end; checked. Any thread may.
  void read(const Piece& piece, std::uint64_t offset, std::span<std::byte> to) const;

 private:
  struct Entry {
    std::uint64_t name_sum;
    std::uint64_t bytes;
  };
  [[noreturn]] void refuse(std::string_view why) const;
  void read_table(std::uint64_t entry_count, std::uint64_t sum_count, std::uint64_t table_offset,
                  std::uint64_t table_sum);

  checkpoint::OpenFile file_;
  std::vector<Entry> entries_;
  std::vector<std::uint64_t> sums_;
  std::uint64_t piece_bytes_ = 0;
  std::size_t next_ = 0;  // of entries_, and where it begins
  std::uint64_t next_offset_ = 0;
  std::size_t next_sum_ = 0;
};

class CacheWriter {
 public:
  // Throws io, also when the disk has less room than `bytes`.
  CacheWriter(std::filesystem::path path, const CacheKey& key, std::uint64_t bytes);
  ~CacheWriter();  // without publish(): nothing is left
  CacheWriter(const CacheWriter&) = delete;
  CacheWriter& operator=(const CacheWriter&) = delete;

  // Then write() until its bytes are there, whole blocks at a time but for the last.
  void begin(std::string_view name, std::uint64_t bytes);
  void write(std::span<const std::byte> part);
  void publish();

 private:
  std::filesystem::path path_, partial_;
  CacheKey key_;
  std::optional<checkpoint::OutputFile> file_;
  std::vector<std::uint64_t> entries_;  // name, bytes, name, bytes, ...
  std::vector<std::uint64_t> sums_;
  std::uint64_t at_ = 0;    // in the file
  std::uint64_t left_ = 0;  // of the piece
};

}  // namespace fourfold::backend::cuda
