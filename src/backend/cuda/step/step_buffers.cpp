#include "backend/cuda/step/step_buffers.h"

#include <algorithm>

#include "backend/cuda/step/runner.h"

namespace fourfold::backend::cuda {
namespace {

// The widest of each kind of row, over all layers.
struct Widths {
  int input = 0;            // of a matrix
  int codes = 0;            // of a matrix that takes FP8 rows
  int projection = 0;       // of a mixer or a router
  int few_projections = 0;  // of latent attention, both of a few rows at once (Runner::query_latent)
  int query = 0;
  int attended = 0;      // over a latent cache, before each head's matrix; 0: there is none
  bool squares = false;  // some layer norms all heads together
  int mixed = 0;
  int inner = 64;
  int fp4_input = 0;  // of a matrix with FP4 inputs; 0: there is none
  int fp4_sets = 0;   // input scales behind one norm
};

void see_norm(Widths& widths, const DenseGroup& group, std::optional<float> experts = std::nullopt) {
  widths.fp4_sets = std::max(widths.fp4_sets, scales_behind_norm(group, experts).count);
}

void see_fp4(Widths& widths, const DenseGroup& group) {
  for (const DenseMatrix& matrix : group.matrices)
    if (quantises(matrix.input)) widths.fp4_input = std::max(widths.fp4_input, matrix.columns());
}

// Token records of so many rows and columns.
std::size_t fp4_bytes(std::size_t rows, int columns) {
  const std::size_t groups =
      (std::max<std::size_t>(rows, dense::kManyTokens) + record::kTokens - 1) / record::kTokens;
  return groups * static_cast<std::size_t>(columns / record::kColumns) * record::kTokenRecordBytes;
}

void see(Widths& widths, const DeviceLayer& layer) {
  const auto take = [&](const DenseGroup& group) {
    for (const DenseMatrix& matrix : group.matrices) {
      widths.input = std::max(widths.input, matrix.columns());
      if (matrix.takes_fp8()) widths.codes = std::max(widths.codes, matrix.columns());
    }
    widths.projection = std::max(widths.projection, group.width);
    see_fp4(widths, group);
  };
  if (const auto* mixer = std::get_if<DeviceDelta>(&layer.mixer)) {
    take(mixer->in), take(mixer->out);
    see_norm(widths, mixer->in);
    widths.mixed = std::max(widths.mixed, mixer->out_columns);
  } else if (const auto* latent = std::get_if<DeviceLatent>(&layer.mixer)) {
    take(latent->in), take(latent->query), take(latent->out);
    widths.few_projections = std::max(widths.few_projections, latent->in.width + latent->query.width);
    see_norm(widths, latent->in);
    widths.query = std::max(widths.query, latent->query_columns());
    widths.attended = std::max(widths.attended, latent->heads * latent->page_latent);
    widths.mixed = std::max(widths.mixed, latent->mixed_columns());
    if (latent->has_query_latent())
      widths.mixed = std::max(widths.mixed, latent->query.matrices.front().columns());
  } else {
    const auto& full = std::get<DeviceAttention>(layer.mixer);
    take(full.in), take(full.out);
    see_norm(widths, full.in);
    widths.squares |= full.norms_rows;
    widths.query = std::max(widths.query, full.heads * full.head_dim);
    widths.mixed = std::max(widths.mixed, full.heads * full.head_dim);
  }
  if (const auto* moe = std::get_if<DeviceMoe>(&layer.mlp)) {
    take(moe->in), take(moe->shared_down);
    see_norm(widths, moe->in, moe->experts.common_inverse);
    widths.inner = std::max(widths.inner, moe->shared_columns);
  } else {
    const auto& mlp = std::get<DeviceMlp>(layer.mlp);
    take(mlp.gate_up), take(mlp.down);
    see_norm(widths, mlp.gate_up);
    widths.inner = std::max(widths.inner, mlp.inner);
  }
}

Widths widths_of(const DeviceModel& model) {
  Widths widths;
  for (const DeviceLayer& layer : model.layers) see(widths, layer);
  if (model.draft) {
    see(widths, model.draft->layer);
    widths.mixed = std::max(widths.mixed, 2 * model.hidden);
    see_fp4(widths, model.draft->combine);
    see_fp4(widths, model.draft->head.matrix);
  }
  see_fp4(widths, model.head.matrix);
  widths.input = std::max(widths.input, model.hidden);
  return widths;
}

// f32 numbers of Buffers::projection.
std::size_t projection_numbers(const Widths& widths, std::size_t rows) {
  return std::max(
      rows * static_cast<std::size_t>(widths.projection),
      std::min<std::size_t>(rows, dense::kTokens) * static_cast<std::size_t>(widths.few_projections));
}

}  // namespace

Buffers make_buffers(const DeviceModel& model, KernelSelector& selector, kernels::Arena& arena,
                     const Capacity& capacity) {
  const Widths widths = widths_of(model);
  const auto rows = static_cast<std::size_t>(capacity.row_count);
  const auto hidden = static_cast<std::size_t>(model.hidden);
  const auto bf16 = [&](int width, const char* name) {
    return arena.take<std::uint16_t>(rows * static_cast<std::size_t>(width), name);
  };
  Buffers buffers;
  buffers.x = arena.take<float>(rows * hidden, "residual stream");
  buffers.normed = bf16(widths.input, "normed rows");
  buffers.staged = bf16(widths.input, "staged rows");
  if (widths.codes > 0) {
    buffers.codes = arena.take<std::uint8_t>(rows * static_cast<std::size_t>(widths.codes), "FP8 rows");
    buffers.factor = arena.take<float>(rows, "factors of FP8 rows");
  }
  buffers.projection = arena.take<float>(projection_numbers(widths, rows), "projections");
  buffers.query = bf16(widths.query, "queries");
  if (widths.squares) {
    buffers.squares = buffers.all_squares = arena.take<device::F32x4>(rows, "squares of heads");
    if (model.part.count > 1)
      buffers.all_squares =
          arena.take<device::F32x4>(rows * static_cast<std::size_t>(model.part.count), "squares of heads");
  }
  if (widths.attended > 0) buffers.attended = bf16(widths.attended, "attended rows");
  buffers.mixed = bf16(widths.mixed, "mixed rows");
  buffers.mixed_columns = widths.mixed;
  buffers.inner = bf16(widths.inner, "inner rows");
  buffers.added = arena.take<float>(rows * hidden, "added rows");
  buffers.logits =
      arena.take<float>(kLogitsRows * static_cast<std::size_t>(model.head.logits_stride), "logits");
  if (model.part.count > 1) {
    buffers.part = arena.take<float>(rows * hidden, "this rank's part");
    buffers.logits_part =
        arena.take<float>(kLogitsRows * static_cast<std::size_t>(model.head.matrix.width), "logits");
  }
  for (float*& rows_kept : buffers.hidden) rows_kept = arena.take<float>(rows * hidden, "hidden rows");
  if (widths.fp4_input > 0) {
    buffers.fp4.rows = arena.take<unsigned char>(fp4_bytes(rows, widths.fp4_input), "quantised rows");
    buffers.fp4.inner = arena.take<unsigned char>(fp4_bytes(rows, widths.inner), "quantised inner rows");
    buffers.fp4.tiles = make_row_tiles(arena, capacity);
  }
  for (int set = 0; set < widths.fp4_sets; ++set)
    buffers.fp4.normed[set] = arena.take<unsigned char>(fp4_bytes(rows, model.hidden), "quantised rows");
  buffers.workspace_bytes = Runner::workspace_bytes(selector, model, capacity);
  buffers.workspace = arena.take<unsigned char>(buffers.workspace_bytes, "workspace");
  return buffers;
}

void forget_buffers(const Buffers& buffers, const DeviceModel& model, const Capacity& capacity,
                    kernels::Memory& memory) {
  const Widths widths = widths_of(model);
  const auto forget = [&](void* start, std::int64_t count, std::int64_t width, std::int64_t bytes) {
    if (width > 0) memory.forget(start, static_cast<std::size_t>(count * width * bytes));
  };
  const std::int64_t rows = capacity.row_count;
  forget(buffers.x, rows, model.hidden, 4);
  forget(buffers.normed, rows, widths.input, 2);
  forget(buffers.staged, rows, widths.input, 2);
  forget(buffers.codes, rows, widths.codes, 1);
  if (buffers.factor != nullptr) forget(buffers.factor, rows, 1, 4);
  forget(buffers.projection,
         static_cast<std::int64_t>(projection_numbers(widths, static_cast<std::size_t>(rows))), 1, 4);
  forget(buffers.query, rows, widths.query, 2);
  if (widths.squares) {
    forget(buffers.squares, rows, 1, sizeof(device::F32x4));
    if (model.part.count > 1) forget(buffers.all_squares, rows, model.part.count, sizeof(device::F32x4));
  }
  forget(buffers.attended, rows, widths.attended, 2);
  forget(buffers.mixed, rows, widths.mixed, 2);
  forget(buffers.inner, rows, widths.inner, 2);
  forget(buffers.added, rows, model.hidden, 4);
  forget(buffers.logits, kLogitsRows, model.head.logits_stride, 4);
  if (buffers.logits_part != nullptr) forget(buffers.logits_part, kLogitsRows, model.head.matrix.width, 4);
  if (widths.fp4_input > 0) {
    const auto count = static_cast<std::size_t>(rows);
    memory.forget(buffers.fp4.rows, fp4_bytes(count, widths.fp4_input));
    memory.forget(buffers.fp4.inner, fp4_bytes(count, widths.inner));
  }
  for (int set = 0; set < widths.fp4_sets; ++set)
    memory.forget(buffers.fp4.normed[set], fp4_bytes(static_cast<std::size_t>(rows), model.hidden));
  forget(buffers.workspace, static_cast<std::int64_t>(buffers.workspace_bytes), 1, 1);
}

}  // namespace fourfold::backend::cuda
