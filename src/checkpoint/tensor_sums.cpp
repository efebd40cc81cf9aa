#include "checkpoint/tensor_sums.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "base/checksum.h"
#include "base/error.h"
#include "base/parallel.h"

namespace fourfold::checkpoint {
namespace {

namespace fs = std::filesystem;
using Sums = std::vector<std::uint64_t>;

// What one thread sums at a time, so that a model of one large tensor keeps all of them busy; and what it
// reads at a time, so that the bytes are still in its cache when they are summed.
constexpr std::uint64_t kPieceBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kReadBytes = std::uint64_t{256} << 10;

struct Piece {
  std::size_t tensor;
  std::uint64_t begin, end;  // in the file
};

std::vector<Piece> pieces_of(const SafetensorsFile& shard) {
  std::vector<Piece> pieces;
  const std::span<const TensorEntry> entries = shard.entries();
  // Tensors lie side by side up to the end of the file.
  const std::uint64_t data = shard.file().size() - (entries.empty() ? 0 : entries.back().end);
  for (std::size_t tensor = 0; tensor < entries.size(); ++tensor)
    for (std::uint64_t at = entries[tensor].begin; at < entries[tensor].end; at += kPieceBytes)
      pieces.push_back({tensor, data + at, data + std::min(at + kPieceBytes, entries[tensor].end)});
  return pieces;
}

std::uint64_t sum_piece(const OpenFile& file, const Piece& piece, const std::function<bool()>& stops) {
  std::vector<std::byte> bytes(std::min(kReadBytes, piece.end - piece.begin));
  std::uint64_t sum = 0;
  for (std::uint64_t at = piece.begin; at < piece.end; at += bytes.size()) {
    if (stops()) fail(Code::cancelled, "{}: its checksum is not wanted any more", file.path().string());
    const std::span part(bytes.data(), std::min<std::uint64_t>(bytes.size(), piece.end - at));
    file.read(at, part);
    sum = checksum(part, sum);
  }
  return sum;
}

Sums read_sums(const SafetensorsFile& shard, const std::function<bool()>& stops) {
  const std::vector<Piece> pieces = pieces_of(shard);
  Sums of_pieces(pieces.size());
  parallel_for(std::ssize(pieces), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      of_pieces[i] = sum_piece(shard.file(), pieces[i], stops);
  });
  Sums sums(shard.entries().size(), 0);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::uint64_t& sum = sums[pieces[i].tensor];
    sum = checksum(std::as_bytes(std::span(&of_pieces[i], 1)), sum);
  }
  return sums;
}

// A file of kept sums: a word for its form, the stamp, the sums, and a checksum of all that.
constexpr std::uint64_t kForm = 0x314d555346465346u;

template <class Stamp>
Sums record_of(const Stamp& stamp, const Sums& sums) {
  Sums record{kForm};
  record.insert(record.end(), stamp.begin(), stamp.end());
  record.insert(record.end(), sums.begin(), sums.end());
  record.push_back(checksum(std::as_bytes(std::span(record))));
  return record;
}

template <class Stamp>
fs::path file_of(const fs::path& folder, const Stamp& stamp) {
  char name[17];
  std::snprintf(name, sizeof name, "%016llx",
                static_cast<unsigned long long>(checksum(std::as_bytes(std::span(stamp)))));
  return folder / name;
}

// Nothing where there are none for this file, or they are broken.
template <class Stamp>
std::optional<Sums> read_kept(const fs::path& folder, const Stamp& stamp, std::size_t count) {
  if (folder.empty()) return std::nullopt;
  std::ifstream file(file_of(folder, stamp), std::ios::binary);
  Sums record(count + stamp.size() + 2);
  const auto bytes = static_cast<std::streamsize>(record.size() * sizeof(std::uint64_t));
  if (!file.read(reinterpret_cast<char*>(record.data()), bytes) || file.peek() != EOF) return std::nullopt;
  Sums sums(record.begin() + 1 + static_cast<std::ptrdiff_t>(stamp.size()), record.end() - 1);
  if (record != record_of(stamp, sums)) return std::nullopt;
  return sums;
}

// Why it could not; empty: it did.
template <class Stamp>
std::string keep(const fs::path& folder, const Stamp& stamp, const Sums& sums) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  const fs::path path = file_of(folder, stamp);
  const fs::path beside = path.string() + "." + std::to_string(::getpid());
  {
    const Sums record = record_of(stamp, sums);
    std::ofstream file(beside, std::ios::binary);
    file.write(reinterpret_cast<const char*>(record.data()),
               static_cast<std::streamsize>(record.size() * sizeof(std::uint64_t)));
    if (!file.flush()) {
      fs::remove(beside, problem);
      return fourfold::format("{} cannot be written", beside.string());
    }
  }
  fs::rename(beside, path, problem);
  return problem ? fourfold::format("{}: {}", path.string(), problem.message()) : "";
}

}  // namespace

fs::path kept_sums_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "fourfold" / "sums";
  const fs::path home = variable("HOME");
  return home.empty() ? fs::path() : home / ".cache" / "fourfold" / "sums";
}

TensorSummer::TensorSummer(const Checkpoint& checkpoint, SumOptions options)
    : checkpoint_(checkpoint), options_(std::move(options)), opened_(std::chrono::system_clock::now()) {
  for (const SafetensorsFile& shard : checkpoint.shards()) stamps_.push_back(stamp_of(shard));
}

TensorSummer::Stamp TensorSummer::stamp_of(const SafetensorsFile& shard) {
  struct stat facts {};
  if (::stat(shard.file().path().c_str(), &facts) != 0)
    fail(Code::io, "{}: cannot be examined: {}", shard.file().path().string(), std::strerror(errno));
  const auto nanoseconds = [](const timespec& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(time.tv_nsec);
  };
  return {facts.st_dev, facts.st_ino, static_cast<std::uint64_t>(facts.st_size), nanoseconds(facts.st_mtim),
          nanoseconds(facts.st_ctim)};
}

// By the clock of the file system, which may be another machine's: one from the future is not still.
bool TensorSummer::is_still(const Stamp& stamp) const {
  const std::chrono::nanoseconds changed(std::max(stamp[3], stamp[4]));
  return opened_.time_since_epoch() - changed >= options_.still;
}

TensorSummer::Sums TensorSummer::sum(const std::function<bool()>& stops) const {
  const auto begin = std::chrono::steady_clock::now();
  Sums out;
  for (std::size_t i = 0; i < stamps_.size(); ++i) {
    const SafetensorsFile& shard = checkpoint_.shards()[i];
    std::optional<std::vector<std::uint64_t>> sums;
    if (is_still(stamps_[i])) sums = read_kept(options_.kept, stamps_[i], shard.entries().size());
    if (!sums) {
      sums = read_sums(shard, stops);
      out.bytes_read += shard.file().size();
      if (!options_.kept.empty() && is_still(stamps_[i]) && stamp_of(shard) == stamps_[i])
        out.not_kept = keep(options_.kept, stamps_[i], *sums);
    }
    out.tensors.insert(out.tensors.end(), sums->begin(), sums->end());
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return out;
}

std::string TensorSummer::name_of(std::size_t tensor) const {
  for (const SafetensorsFile& shard : checkpoint_.shards()) {
    if (tensor < shard.entries().size())
      return fourfold::format("{} in {}", shard.entries()[tensor].name,
                              shard.file().path().filename().string());
    tensor -= shard.entries().size();
  }
  return "none";
}

}  // namespace fourfold::checkpoint
