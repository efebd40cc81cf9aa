// Launches of the kernels that pack on the GPU.
#pragma once

#include "kernels/launch/machine.h"
#include "kernels/record/pack.h"
#include "kernels/record/pack_dense.h"

namespace fourfold::record {

struct PackRows {
  kernels::RowHandle nvfp4, mxfp4, dense;
};
inline PackRows find_pack_rows(const kernels::Machine& machine) {
  using enum kernels::RowKind;
  return {machine.required(basic, kPackNvfp4Row), machine.required(basic, kPackMxfp4Row),
          machine.required(basic, kPackDenseRow)};
}

inline void launch_pack(kernels::Machine& machine, const PackRows& rows, const PackJob& job, bool mxfp4) {
  const kernels::RowHandle row = mxfp4 ? rows.mxfp4 : rows.nvfp4;
  machine.launch(row, machine.walkers(row, 8), job);
}
inline void launch_pack_dense(kernels::Machine& machine, const PackRows& rows, const DenseJob& job) {
  require_for_device(job);
  machine.launch(rows.dense, machine.walkers(rows.dense, 8), job);
}

}  // namespace fourfold::record
