#include "backend/cuda/load/cache_source.h"

#include <algorithm>

namespace fourfold::backend::cuda {

CacheSource::CacheSource(kernels::Memory& memory, UploadRing& uploads, const std::filesystem::path& path,
                         const CacheKey& key, checkpoint::LoadProgress* progress)
    : memory_(memory), uploads_(uploads), cache_(path, key), progress_(progress) {
  if (progress != nullptr) progress->set_total(cache_.piece_bytes());
}

HeldMatrix CacheSource::hold_anew(const checkpoint::Matrix& matrix, WeightFormat format) {
  HeldMatrix held{&matrix, format, true, {}};
  held.scales.resize(scale_count(matrix, format));
  const auto scales = std::as_writable_bytes(std::span(held.scales));
  cache_.read(cache_.take(scales_name(matrix), scales.size()), 0, scales);
  return held;
}

void CacheSource::place(const RecordRun& run) { place(piece_name(run), run.to, run_bytes(run)); }

void CacheSource::place_rows(const HeldMatrix& held, std::uint16_t* to) {
  const std::uint64_t bytes =
      code_row_bytes(WeightFormat::bf16, held.columns()) * static_cast<std::size_t>(held.matrix->rows);
  place(rows_name(held), reinterpret_cast<unsigned char*>(to), bytes);
}

void CacheSource::place(const std::string& name, unsigned char* to, std::uint64_t bytes) {
  const CacheReader::Piece piece = cache_.take(name, bytes);
  bytes_read_ += bytes;
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t most = uploads_.room() / kCacheBlockBytes * kCacheBlockBytes;
    const std::uint64_t count = std::min<std::uint64_t>(bytes - at, uploads_.room());
    const std::uint64_t part = count == bytes - at ? count : most;
    if (part == 0) {
      uploads_.next_slot();
      continue;
    }
    const UploadRing::Place place = uploads_.reserve(part);
    for (std::uint64_t block = 0; block < part; block += kCacheBlockBytes) {
      const std::uint64_t size = std::min(kCacheBlockBytes, part - block);
      uploads_.fill([this, piece, from = at + block, host = place.host + block, size] {
        cache_.read(piece, from, {host, size});
        if (progress_ != nullptr) progress_->add(size);
      });
    }
    uploads_.then([this, to = to + at, host = place.host, part] { memory_.send(to, host, part); });
    at += part;
  }
}

void CacheSource::finish() {
  cache_.read(cache_.take("errors", sizeof errors_), 0, std::as_writable_bytes(std::span(errors_)));
}

}  // namespace fourfold::backend::cuda
