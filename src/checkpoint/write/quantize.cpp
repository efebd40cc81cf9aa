#include "checkpoint/write/quantize.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/bind.h"
#include "checkpoint/quantization.h"
#include "checkpoint/write/quantize_plan.h"
#include "json/parse.h"

namespace fourfold::checkpoint {
namespace {

constexpr std::int64_t kChunkElements = 1 << 18;
constexpr std::size_t kConfigBytesMax = std::size_t{64} << 20;

// Reads rows of a stored tensor in f32; a file that becomes shorter while we work is an error.
class RowReader {
 public:
  RowReader(const Checkpoint& in, const QuantizedPiece& piece) : in_(in), piece_(piece) {}

  std::span<const float> read(std::int64_t row, std::int64_t count) {
    return piece_.expert != nullptr ? read_expert(row, count) : read_stored(row, count);
  }

 private:
  std::span<const float> read_expert(std::int64_t row, std::int64_t count) {
    const LoadedMatrix part = load_rows(*piece_.expert, {row, count});
    const auto columns = static_cast<std::size_t>(piece_.columns);
    values_.resize(static_cast<std::size_t>(count) * columns);
    for (std::int64_t i = 0; i < count; ++i)
      read_row(part.matrix, i, std::span(values_).subspan(static_cast<std::size_t>(i) * columns, columns));
    return values_;
  }

  std::span<const float> read_stored(std::int64_t row, std::int64_t count) {
    const auto width = static_cast<std::size_t>(dtype_bits(piece_.source->dtype) / 8);
    const auto first = static_cast<std::size_t>(row * piece_.columns);
    const auto elements = static_cast<std::size_t>(count * piece_.columns);
    bytes_.resize(elements * width);
    values_.resize(elements);
    in_.read(piece_.source->bytes.subspan(first * width, elements * width), bytes_);
    switch (piece_.source->dtype) {
      case DType::bf16: widen<Bf16>(); break;
      case DType::f16: widen<F16>(); break;
      default: std::memcpy(values_.data(), bytes_.data(), bytes_.size()); break;
    }
    return values_;
  }

  template <class T>
  void widen() {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      T stored;
      std::memcpy(&stored, bytes_.data() + i * sizeof(T), sizeof(T));
      values_[i] = to_float(stored);
    }
  }

  const Checkpoint& in_;
  const QuantizedPiece& piece_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
};

class Quantizer {
 public:
  Quantizer(const Checkpoint& in, const StorageScheme& scheme, CheckpointWriter& writer)
      : in_(in), scheme_(scheme), writer_(writer) {}

  void write(const std::vector<QuantizedPiece>& group) {
    float amax = 0;
    for (const QuantizedPiece& piece : group) amax = std::max(amax, amax_of(piece));
    for (const QuantizedPiece& piece : group) {
      if (piece.stored == StoredAs::nvfp4)
        write_nvfp4(piece, amax);
      else
        write_fp8(piece, amax);
    }
  }

  void copy(const CopiedTensor& tensor) {
    std::vector<std::byte> buffer;
    const auto bytes = tensor.source->bytes;
    for (std::size_t at = 0; at < bytes.size(); at += kCopyBytes) {
      buffer.resize(std::min(kCopyBytes, bytes.size() - at));
      in_.read(bytes.subspan(at, buffer.size()), buffer);
      writer_.write(tensor.output, at, buffer);
    }
  }

 private:
  static constexpr std::size_t kCopyBytes = std::size_t{4} << 20;

  static std::int64_t rows_at_once(const QuantizedPiece& piece) {
    return std::max<std::int64_t>(1, kChunkElements / piece.columns);
  }

  template <class Use>
  void for_each_chunk(const QuantizedPiece& piece, const Use& use) {
    RowReader reader(in_, piece);
    const std::int64_t step = rows_at_once(piece);
    for (std::int64_t row = 0; row < piece.rows; row += step) {
      const std::int64_t count = std::min(step, piece.rows - row);
      use(row, count, reader.read(row, count));
    }
  }

  float amax_of(const QuantizedPiece& piece) {
    float amax = 0;
    for_each_chunk(piece, [&](std::int64_t row, std::int64_t, std::span<const float> values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i]))
          fail(Code::bad_checkpoint, "{}{}: row {}, column {} is NaN or infinite", piece.source->name,
               piece.expert == nullptr ? "" : ", " + piece.expert->expert_module,
               row + static_cast<std::int64_t>(i) / piece.columns,
               static_cast<std::int64_t>(i) % piece.columns);
        amax = std::max(amax, std::abs(values[i]));
      }
    });
    return amax;
  }

  void write_nvfp4(const QuantizedPiece& piece, float amax) {
    for_each_chunk(piece, [&](std::int64_t row, std::int64_t count, std::span<const float> values) {
      const Nvfp4Matrix part = quantize_nvfp4_weights(values, count, piece.columns, amax);
      const auto offset = static_cast<std::uint64_t>(row * piece.columns);
      writer_.write(piece.first_output, offset / 2, std::as_bytes(std::span(part.codes)));
      writer_.write(piece.first_output + 1, offset / kNvfp4BlockColumns,
                    std::as_bytes(std::span(part.scales)));
    });
    const ModelOptScale scale{nvfp4_weight_global_scale(amax)};
    put_scalar(piece.first_output + 2, scheme_.names == NameConvention::compressed_tensors
                                           ? to_compressed_tensors(scale).weight_global_scale
                                           : scale.weight_scale_2);
  }

  void write_fp8(const QuantizedPiece& piece, float amax) {
    const float scale = amax == 0 ? 1.0f : std::max(amax / kE4m3Largest, 0x1p-126f);
    std::vector<E4m3> codes;
    for_each_chunk(piece, [&](std::int64_t row, std::int64_t, std::span<const float> values) {
      codes.clear();
      for (const float w : values) codes.push_back(to_e4m3(w / scale));
      writer_.write(piece.first_output, static_cast<std::uint64_t>(row * piece.columns),
                    std::as_bytes(std::span(codes)));
    });
    put_scalar(piece.first_output + 1, scale);
  }

  void put_scalar(std::size_t output, float value) {
    writer_.write(output, 0, std::as_bytes(std::span(&value, 1)));
  }

  const Checkpoint& in_;
  const StorageScheme& scheme_;
  CheckpointWriter& writer_;
};

void write_tensors(const Checkpoint& in, const StorageScheme& scheme, const QuantizePlan& plan,
                   CheckpointWriter& writer, LoadProgress& progress) {
  Quantizer quantizer(in, scheme, writer);
  const auto group_count = static_cast<std::int64_t>(plan.groups.size());
  const auto count = group_count + static_cast<std::int64_t>(plan.copies.size());
  parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::uint64_t bytes = 0;
      if (i < group_count) {
        const auto& group = plan.groups[static_cast<std::size_t>(i)];
        quantizer.write(group);
        for (const QuantizedPiece& piece : group)
          bytes +=
              static_cast<std::uint64_t>(piece.rows * piece.columns * dtype_bits(piece.source->dtype) / 8);
      } else {
        const CopiedTensor& tensor = plan.copies[static_cast<std::size_t>(i - group_count)];
        quantizer.copy(tensor);
        bytes = tensor.source->bytes.size();
      }
      progress.add(bytes);
    }
  });
  writer.finish();
}

// config.json with the description of what was done.
std::string described_config(const std::filesystem::path& folder, const StorageScheme& scheme,
                             const std::vector<StoredModule>& modules) {
  namespace bj = boost::json;
  bj::value config = json::parse_file(folder / "config.json", {.text_bytes_max = kConfigBytesMax});
  JsonWriter description;
  describe_quantization(description, scheme, modules);
  config.as_object()["quantization_config"] =
      json::parse(description.finish(), "the description", {.text_bytes_max = kConfigBytesMax});
  return bj::serialize(config) + "\n";
}

// What a model folder holds beside tensors and config: text that describes, never code.
void copy_text_files(const std::filesystem::path& from, const OutputFolder& out) {
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(from, problem)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    const bool text = extension == ".json" || extension == ".jinja" || extension == ".txt" ||
                      extension == ".md" || extension == ".model" || name == "LICENSE";
    const bool made_anew =
        name == "config.json" || name == "hf_quant_config.json" || name == "model.safetensors.index.json";
    std::error_code unknown;
    if (text && !made_anew && entry.is_regular_file(unknown)) out.copy(entry.path());
  }
  if (problem) fail(Code::io, "{} cannot be listed: {}", from.string(), problem.message());
}

std::vector<const Matrix*> matrices_of(const ModelWeights& weights) {
  std::vector<const Matrix*> matrices;
  for_each_matrix(weights, [&](const Matrix& matrix) { matrices.push_back(&matrix); });
  return matrices;
}

MatrixError error_of(const Matrix& stored_before, const Matrix& stored_after) {
  const LoadedMatrix loaded_before = load(stored_before), loaded_after = load(stored_after);
  const Matrix& before = loaded_before.matrix;
  const Matrix& after = loaded_after.matrix;
  MatrixError error{.name = std::string(after.name),
                    .role = before.role,
                    .format = format_of(after),
                    .rows = after.rows,
                    .columns = after.columns};
  std::vector<float> wanted(static_cast<std::size_t>(before.columns)), got(wanted.size());
  double squares = 0, off_squares = 0, largest = 0, largest_off = 0;
  for (std::int64_t row = 0; row < before.rows; ++row) {
    read_row(before, row, wanted);
    read_row(after, row, got);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double w = wanted[i];
      const double off = std::abs(static_cast<double>(got[i]) - w);
      squares += w * w, off_squares += off * off;
      largest = std::max(largest, std::abs(w)), largest_off = std::max(largest_off, off);
    }
  }
  error.relative_rms = squares == 0 ? 0 : std::sqrt(off_squares / squares);
  error.largest = largest == 0 ? 0 : largest_off / largest;
  return error;
}

std::vector<MatrixError> measure(const Checkpoint& in, const std::filesystem::path& out,
                                 const ModelConfig& config, LoadProgress& progress) {
  const Checkpoint written(out);
  const BoundModel before = bind_model(in, config);
  const BoundModel after = bind_model(written, read_model_config(out));
  const auto old_matrices = matrices_of(before.weights);
  const auto new_matrices = matrices_of(after.weights);
  check(old_matrices.size() == new_matrices.size(), "both checkpoints have the same matrices",
        old_matrices.size(), new_matrices.size());
  std::vector<MatrixError> errors(old_matrices.size());
  parallel_for(static_cast<std::int64_t>(errors.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const Matrix& old_matrix = *old_matrices[i];
      const Matrix& new_matrix = *new_matrices[i];
      if (format_of(new_matrix) != format_of(old_matrix)) errors[i] = error_of(old_matrix, new_matrix);
      progress.add(stored_bytes(old_matrix));
    }
  });
  std::erase_if(errors, [](const MatrixError& error) { return error.name.empty(); });
  return errors;
}

}  // namespace

QuantizeReport quantize_checkpoint(const Checkpoint& in, const ModelConfig& config,
                                   const StorageScheme& scheme, const OutputFolder& out,
                                   const LoadProgress::Report& report) {
  const Quantization stated = read_quantization(in.folder());
  if (stated.quantized())
    fail_with_hint(Code::unsupported_model, "quantise the 16-bit release of the model",
                   "{} is quantised already ({})", in.folder().string(), quant_method_name(stated.method));
  const BoundModel model = bind_model(in, config);  // refuses what does not fit before a byte is written
  const QuantizePlan plan = plan_quantization(in, scheme, model.weights);
  CheckpointWriter writer(out.path(), plan.outputs);
  LoadProgress progress(in.tensor_bytes() + stored_bytes(model.weights), report);
  write_tensors(in, scheme, plan, writer, progress);
  out.write("config.json", described_config(in.folder(), scheme, plan.modules));
  if (const std::string sidecar = modelopt_sidecar(scheme, plan.modules); !sidecar.empty())
    out.write("hf_quant_config.json", sidecar);
  copy_text_files(in.folder(), out);
  return {measure(in, out.path(), config, progress), plan.unsuited, in.tensor_bytes(), writer.tensor_bytes()};
}

}  // namespace fourfold::checkpoint
