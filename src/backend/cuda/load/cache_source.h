// Records from a packed copy: read, checked and copied, in the order in which they were written.
#pragma once

#include <string>

#include "backend/cuda/load/record_cache.h"
#include "backend/cuda/load/record_source.h"
#include "backend/cuda/load/upload_ring.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

class CacheSource final : public RecordSource {
 public:
  // Throws what CacheReader does.
  CacheSource(kernels::Memory& memory, UploadRing& uploads, const std::filesystem::path& path,
              const CacheKey& key, checkpoint::LoadProgress* progress);

  HeldMatrix hold_anew(const checkpoint::Matrix& matrix, WeightFormat format) override;
  void place(const RecordRun& run) override;
  void place_rows(const HeldMatrix& held, std::uint16_t* to) override;
  void finish() override;
  RoleErrors errors() const override { return errors_; }

 private:
  void place(const std::string& name, unsigned char* to, std::uint64_t bytes);

  kernels::Memory& memory_;
  UploadRing& uploads_;
  CacheReader cache_;
  checkpoint::LoadProgress* progress_;
  RoleErrors errors_{};
};

}  // namespace fourfold::backend::cuda
