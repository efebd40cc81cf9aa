// The plain grouped GEMM through the C ABI.
#include "kernels/c_api/door.h"
#include "kernels/moe_group/grouped_gemm.h"

struct fourfold_gemm {
  fourfold_context* context;
  fourfold::moe_group::PreparedGemm prepared;
  std::string notice;
};

namespace fourfold::c_api {
namespace {

moe_group::GemmRequest gemm_request(const fourfold_gemm_options& options) {
  if (options.result != FOURFOLD_BF16 && options.result != FOURFOLD_F32)
    fail(Code::invalid_request, "result is {}; FOURFOLD_BF16 is {}, FOURFOLD_F32 is {}", options.result,
         int{FOURFOLD_BF16}, int{FOURFOLD_F32});
  return {
      options.columns,           options.out_columns,   options.experts, activations_of(options.activations),
      format_of(options.format), role_of(options.role), options.rows,    options.result == FOURFOLD_F32};
}

void run_gemm(fourfold_gemm& gemm, const fourfold_gemm_call& call) {
  require_aligned(call.weights, 16, "the packed weights");
  require_aligned(call.scale, 4, "scale");
  require_aligned(call.input_scale, 4, "input_scale");
  require_aligned(call.input_inverse, 4, "input_inverse");
  require_aligned(call.offsets, 4, "the offsets");
  require_aligned(call.input, 16, "the input");
  require_aligned(call.output, 16, "the output");
  if (call.input != nullptr && call.input == call.output)
    fail(Code::invalid_request, "input and output are the same memory; the GEMM does not work in place");
  const OnDevice scope(*gemm.context);
  moe_group::run_gemm(*gemm.context->machine, gemm.prepared,
                      {static_cast<const unsigned char*>(call.weights), call.scale, call.input_scale,
                       call.input_inverse, static_cast<const std::uint16_t*>(call.input), call.offsets,
                       call.output, call.workspace, call.workspace_bytes, call.rows});
}

}  // namespace
}  // namespace fourfold::c_api

using namespace fourfold;

extern "C" {

fourfold_status fourfold_gemm_prepare(fourfold_context* context, const fourfold_gemm_options* options,
                                      fourfold_gemm** gemm) {
  return c_api::enter([&] {
    fourfold_context& own = c_api::required(context, "the context");
    fourfold_gemm*& out = c_api::required(gemm, "the place for the GEMM");
    const auto asked = c_api::read_options(options, "fourfold_gemm_options");
    auto prepared = moe_group::prepare_gemm(*own.machine, c_api::gemm_request(asked));
    std::string notice = c_api::require_native(own, prepared.choice, asked.activations, asked.allow_emulated);
    out = new fourfold_gemm{&own, std::move(prepared), std::move(notice)};
  });
}

void fourfold_gemm_release(fourfold_gemm* gemm) { delete gemm; }

fourfold_status fourfold_gemm_workspace_bytes(const fourfold_gemm* gemm, size_t* bytes) {
  return c_api::enter([&] {
    c_api::required(bytes, "the place for the size") =
        c_api::required(gemm, "the GEMM").prepared.layout.total;
  });
}

const char* fourfold_gemm_row(const fourfold_gemm* gemm) {
  return gemm == nullptr ? "" : gemm->prepared.choice.gate_up_row.c_str();
}

const char* fourfold_gemm_notice(const fourfold_gemm* gemm) {
  return gemm == nullptr ? "" : gemm->notice.c_str();
}

fourfold_status fourfold_gemm_run(fourfold_gemm* gemm, const fourfold_gemm_call* call) {
  return c_api::enter([&] {
    c_api::run_gemm(c_api::required(gemm, "the GEMM"), c_api::read_options(call, "fourfold_gemm_call"));
  });
}

}  // extern "C"
