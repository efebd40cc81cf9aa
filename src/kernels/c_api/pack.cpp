// Packing: the checkpoint's matrices to tile records, and its two conventions for global scales; quantising
// what is not FP4 yet to what a checkpoint has.
#include "kernels/record/pack.h"
#include <cstring>
#include <limits>
#include <span>
#include "base/format.h"
#include "base/mxfp4.h"
#include "base/nvfp4.h"
#include "kernels/c_api/door.h"
#include "kernels/record/launch_pack.h"

namespace fourfold::c_api {
namespace {

constexpr std::int64_t kSideMax = 1 << 20;

struct Pack {
  record::PackJob job;
  bool mxfp4;
  std::size_t bytes;
};

record::RowOrder row_order_of(std::int32_t value) {
  if (value == FOURFOLD_PLAIN) return record::RowOrder::plain;
  if (value == FOURFOLD_GATE_UP) return record::RowOrder::gate_up;
  fail(Code::invalid_request, "row_order is {}; FOURFOLD_PLAIN is {}, FOURFOLD_GATE_UP is {}", value,
       int{FOURFOLD_PLAIN}, int{FOURFOLD_GATE_UP});
}

const std::uint8_t* as_bytes(const void* pointer) { return static_cast<const std::uint8_t*>(pointer); }

// Shape and size; pointers are looked at by who uses them.
Pack pack_of(const fourfold_pack_options& options, void* records) {
  Pack pack{};
  pack.mxfp4 = format_of(options.format) == WeightFormat::mxfp4;
  const bool half = activations_of(options.activations) == moe_layer::Activations::w4a16;
  if (pack.mxfp4 && !half)
    fail(Code::unsupported_op,
         "MXFP4 activations exist as a verified row only; pack MXFP4 weights for FOURFOLD_W4A16");
  const auto order = row_order_of(options.row_order);
  if (options.rows <= 0 || options.rows > kSideMax || options.rows % record::kRows != 0)
    fail(Code::invalid_request, "rows is {}; it must be a positive multiple of {}, at most {}", options.rows,
         record::kRows, with_commas(kSideMax));
  if (options.columns <= 0 || options.columns > kSideMax || options.columns % record::kColumns != 0)
    fail(Code::invalid_request, "columns is {}; it must be a positive multiple of {}, at most {}",
         options.columns, record::kColumns, with_commas(kSideMax));
  const std::int64_t rows = order == record::RowOrder::gate_up ? 2 * options.rows : options.rows;
  pack.job = {{as_bytes(options.codes), as_bytes(options.scales)},
              {as_bytes(options.up_codes), as_bytes(options.up_scales)},
              static_cast<std::uint8_t*>(records),
              rows,
              options.columns,
              order,
              half ? record::BitOrder::half : record::BitOrder::fp4};
  const auto row_count = static_cast<std::size_t>(rows),
             column_count = static_cast<std::size_t>(options.columns);
  pack.bytes = pack.mxfp4 ? record::packed_bytes<record::Mxfp4>(row_count, column_count)
                          : record::packed_bytes<record::Nvfp4>(row_count, column_count);
  return pack;
}

void require_pointers(const Pack& pack, std::size_t records_bytes) {
  required(pack.job.matrix.codes, "codes");
  required(pack.job.matrix.scales, "scales");
  if (pack.job.row_order == record::RowOrder::gate_up) {
    required(pack.job.up.codes, "up_codes");
    required(pack.job.up.scales, "up_scales");
  } else if (pack.job.up.codes != nullptr || pack.job.up.scales != nullptr) {
    fail(Code::invalid_request, "up_codes and up_scales are for FOURFOLD_GATE_UP; this matrix is plain");
  }
  required(pack.job.records, "the place for the records");
  if (records_bytes < pack.bytes)
    fail(Code::invalid_request, "the records need {} bytes; there is room for {}",
         with_commas(static_cast<long long>(pack.bytes)), with_commas(static_cast<long long>(records_bytes)));
}

template <class Matrix>
float hand_over(const Matrix& matrix, float global_scale, void* codes, void* scales) {
  static_assert(sizeof(matrix.scales[0]) == 1);
  std::memcpy(codes, matrix.codes.data(), matrix.codes.size());
  std::memcpy(scales, matrix.scales.data(), matrix.scales.size());
  return global_scale;
}

// Returns the global scale.
float quantize(const fourfold_quantize_options& options, void* codes, void* scales) {
  const bool mxfp4 = format_of(options.format) == WeightFormat::mxfp4;
  const std::int64_t block = mxfp4 ? kMxfp4BlockColumns : kNvfp4BlockColumns;
  const std::int64_t rows = options.rows, columns = options.columns;
  if (rows <= 0 || rows > kSideMax)
    fail(Code::invalid_request, "rows is {}; it must be 1 to {}", rows, with_commas(kSideMax));
  if (columns <= 0 || columns > kSideMax || columns % block != 0)
    fail(Code::invalid_request, "columns is {}; it must be a positive multiple of {}, at most {}", columns,
         block, with_commas(kSideMax));
  if (!(options.amax >= 0.0f && options.amax <= std::numeric_limits<float>::max()))
    fail(Code::invalid_request, "amax is {}; it must be 0 or a positive number", options.amax);
  if (mxfp4 && options.amax != 0.0f)
    fail(Code::invalid_request, "amax is {}; MXFP4 has no scale above its blocks'", options.amax);
  const std::span<const float> values(&required(options.values, "values"),
                                      static_cast<std::size_t>(rows * columns));
  required(as_bytes(codes), "the place for the codes");
  required(as_bytes(scales), "the place for the scales");
  if (mxfp4) return hand_over(quantize_mxfp4_weights(values, rows, columns), 1.0f, codes, scales);
  const Nvfp4Matrix made = options.amax == 0.0f ? quantize_nvfp4_weights(values, rows, columns)
                                                : quantize_nvfp4_weights(values, rows, columns, options.amax);
  return hand_over(made, made.global_scale, codes, scales);
}

}  // namespace
}  // namespace fourfold::c_api

using namespace fourfold;

extern "C" {

fourfold_status fourfold_packed_bytes(const fourfold_pack_options* options, size_t* bytes) {
  return c_api::enter([&] {
    std::size_t& out = c_api::required(bytes, "the place for the size");
    out = c_api::pack_of(c_api::read_options(options, "fourfold_pack_options"), nullptr).bytes;
  });
}

fourfold_status fourfold_pack_host(const fourfold_pack_options* options, void* records,
                                   size_t records_bytes) {
  return c_api::enter([&] {
    const auto pack = c_api::pack_of(c_api::read_options(options, "fourfold_pack_options"), records);
    c_api::require_pointers(pack, records_bytes);
    if (pack.mxfp4)
      record::pack_records<record::Mxfp4>(pack.job);
    else
      record::pack_records<record::Nvfp4>(pack.job);
  });
}

fourfold_status fourfold_pack_device(fourfold_context* context, const fourfold_pack_options* options,
                                     void* records, size_t records_bytes) {
  return c_api::enter([&] {
    fourfold_context& own = c_api::required(context, "the context");
    const auto pack = c_api::pack_of(c_api::read_options(options, "fourfold_pack_options"), records);
    c_api::require_pointers(pack, records_bytes);
    c_api::require_aligned(records, 16, "the place for the records");
    c_api::require_aligned(pack.job.matrix.codes, 4, "codes");
    c_api::require_aligned(pack.job.matrix.scales, 4, "scales");
    c_api::require_aligned(pack.job.up.codes, 4, "up_codes");
    c_api::require_aligned(pack.job.up.scales, 4, "up_scales");
    const c_api::OnDevice scope(own);
    record::launch_pack(*own.machine, record::find_pack_rows(*own.machine), pack.job, pack.mxfp4);
  });
}

fourfold_status fourfold_quantize_host(const fourfold_quantize_options* options, void* codes, void* scales,
                                       float* global_scale) {
  return c_api::enter([&] {
    float& out = c_api::required(global_scale, "the place for the global scale");
    out = c_api::quantize(c_api::read_options(options, "fourfold_quantize_options"), codes, scales);
  });
}

fourfold_status fourfold_weight_scale(int32_t convention, float stored, float* scale) {
  return c_api::enter([&] {
    float& out = c_api::required(scale, "the place for the scale");
    if (convention == FOURFOLD_MODELOPT)
      out = global_scale(ModelOptScale{stored});
    else if (convention == FOURFOLD_COMPRESSED_TENSORS)
      out = global_scale(CompressedTensorsScale{stored});
    else
      fail(Code::invalid_request,
           "convention is {}; FOURFOLD_MODELOPT is {}, FOURFOLD_COMPRESSED_TENSORS is {}", convention,
           int{FOURFOLD_MODELOPT}, int{FOURFOLD_COMPRESSED_TENSORS});
  });
}

fourfold_status fourfold_input_scale(int32_t convention, float stored, float* scale, float* inverse) {
  return c_api::enter([&] {
    float& out = c_api::required(scale, "the place for the scale");
    float& out_inverse = c_api::required(inverse, "the place for the inverse");
    Nvfp4InputScale both{};
    if (convention == FOURFOLD_MODELOPT)
      both = nvfp4_input_scale(ModelOptInputScale{stored});
    else if (convention == FOURFOLD_COMPRESSED_TENSORS)
      both = nvfp4_input_scale(CompressedTensorsInputScale{stored});
    else
      fail(Code::invalid_request,
           "convention is {}; FOURFOLD_MODELOPT is {}, FOURFOLD_COMPRESSED_TENSORS is {}", convention,
           int{FOURFOLD_MODELOPT}, int{FOURFOLD_COMPRESSED_TENSORS});
    out = both.scale;
    out_inverse = both.inverse;
  });
}

}  // extern "C"
