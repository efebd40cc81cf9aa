// A weight matrix in the CPU's own form: panels of 16 rows, so that a lane is a row and no sum ever crosses
// lanes. Columns are padded with zeros to a multiple of 16.
//
//   NVFP4  per panel, first the codes of all blocks: [block][half][row][4] bytes, 128 a block. The byte
//          (half, row, j) holds column 8 half + j in its low nibble and column 8 half + 4 + j in the high
//          one, so two masks give what a dot product instruction wants: four neighbouring columns of each
//          row. Then the E4M3 scales: [block][row].
//   BF16   [column pair][row][2]
//   E4M3   [column][row]
//   F32    [column][row]
//
// One packing serves every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/bf16.h"
#include "base/e4m3.h"
#include "base/nvfp4.h"
#include "base/weight_format.h"

namespace fourfold::cpu {

inline constexpr std::int64_t kPanelRows = 16;
inline constexpr std::int64_t kPanelColumns = 16;  // columns come in multiples of this

// Memory that is aligned for the widest loads, and asks for large pages where it is large. Not initialised.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t size);  // throws out_of_memory
  std::uint8_t* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::uint8_t* bytes) const;
  };
  std::unique_ptr<std::uint8_t, Free> bytes_;
  std::size_t size_ = 0;
};

struct PackedMatrix {
  WeightFormat format = WeightFormat::f32;  // MXFP4 has no panels
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t padded_columns = 0;
  std::int64_t panel_bytes = 0;
  AlignedBytes panels;
  float global_scale = 1;  // NVFP4

  // E4M3: [panel][segment][16] scales, each for one row and segment_columns columns.
  std::int64_t segment_columns = 0;
  std::vector<float> segment_scales;

  std::int64_t panel_count() const { return (rows + kPanelRows - 1) / kPanelRows; }
  const std::uint8_t* panel(std::int64_t index) const { return panels.data() + index * panel_bytes; }
  std::int64_t segment_count() const {
    return segment_columns == 0 ? 1 : (padded_columns + segment_columns - 1) / segment_columns;
  }
};

// Where the rows of the new matrix lie in the stored one.
using StoredRow = std::function<std::int64_t(std::int64_t row)>;

// Which of a stored row's columns the new matrix has, when it has not all: so many from `first` on.
struct StoredColumns {
  std::int64_t first = 0;
  std::int64_t whole = 0;  // columns of a stored row; 0: as many as the new matrix has
};

// columns: of the new matrix; those of NVFP4 begin and end at whole blocks.
PackedMatrix pack_nvfp4(const Nvfp4View& stored, std::int64_t rows, std::int64_t columns,
                        const StoredRow& stored_row, StoredColumns from = {});
PackedMatrix pack_bf16(std::span<const Bf16> stored, std::int64_t rows, std::int64_t columns,
                       const StoredRow& stored_row, StoredColumns from = {});
// scale_of(stored row, segment); a segment is segment_columns wide, a multiple of 16.
PackedMatrix pack_e4m3(std::span<const E4m3> stored, std::int64_t rows, std::int64_t columns,
                       const StoredRow& stored_row, std::int64_t segment_columns,
                       const std::function<float(std::int64_t stored_row, std::int64_t segment)>& scale_of,
                       StoredColumns from = {});
// read_row fills one row in f32.
PackedMatrix pack_f32(std::int64_t rows, std::int64_t columns,
                      const std::function<void(std::int64_t row, std::span<float> out)>& read_row);

}  // namespace fourfold::cpu
