// Stands in for the commands that take a MODEL where the model floor was not built: the program knows them,
// and says what is missing.
#include "base/error.h"
#include "cli/bench_load_command.h"
#include "cli/bench_model_command.h"
#include "cli/bench_serve_command.h"
#include "cli/chat_command.h"
#include "cli/compare_command.h"
#include "cli/diff_backends_command.h"
#include "cli/doctor_command.h"
#include "cli/health_command.h"
#include "cli/hello.h"
#include "cli/hub_commands.h"
#include "cli/inspect_command.h"
#include "cli/make_model_command.h"
#include "cli/perplexity_command.h"
#include "cli/plan_model_command.h"
#include "cli/quantize_command.h"
#include "cli/rank_command.h"
#include "cli/report_options.h"
#include "cli/run_command.h"
#include "cli/serve_command.h"
#include "cli/tune_command.h"

namespace fourfold::cli {
namespace {

[[noreturn]] void refuse() {
  fail_with_hint(Code::unsupported_model,
                 "Install the headers of Boost 1.81 or newer (Debian 12: libboost1.81-dev, later: "
                 "libboost-dev) and build "
                 "again.",
                 "this fourfold was built without the model floor");
}

}  // namespace

int run_bench_load(const BenchLoadOptions&, const Console&) { refuse(); }
int run_bench_model(const BenchModelOptions&, const Console&) { refuse(); }
int run_bench_serve(const BenchServeOptions&, const Console&) { refuse(); }
int run_bench_diff(const BenchDiffOptions&, const Console&) { refuse(); }
int run_run(const RunOptions&, const Console&) { refuse(); }
int run_serve(const ServeOptions&, const Console&) { refuse(); }
int run_rank(const RankCommandOptions&, const Console&) { refuse(); }
int run_chat(const ChatOptions&, int, const Console&) { refuse(); }
int run_compare(const CompareOptions&, const Console&) { refuse(); }
int run_doctor(const DoctorOptions&, const Console&) { refuse(); }
int run_env(const EnvOptions&, const Console&) { refuse(); }
int run_health(const HealthOptions&, const Console&) { refuse(); }
int run_inspect(const InspectOptions&, const Console&) { refuse(); }
std::string shape_names() { return "none"; }
int run_make_model(const MakeModelOptions&, const Console&) { refuse(); }
int run_perplexity(const PerplexityOptions&, const Console&) { refuse(); }
int run_plan_model(const PlanModelOptions&, const Console&) { refuse(); }
int run_report(const ReportOptions&, const Console&) { refuse(); }
int run_tune(const TuneCommandOptions&, const Console&) { refuse(); }
int run_diff_backends(const DiffBackendsOptions&, const Console&) { refuse(); }
int run_hello(const Console& console) {
  console.out << "This fourfold was built without the model floor; fourfold help lists what it can do.\n";
  return kFine;
}
int run_pull(const PullOptions&, const Console&) { refuse(); }
int run_list(const ListOptions&, const Console&) { refuse(); }
int run_remove(const RemoveOptions&, const Console&) { refuse(); }
int run_quantize(const QuantizeOptions&, const Console&) { refuse(); }

}  // namespace fourfold::cli
