#include "cli/rank_command.h"

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/fetch_model.h"
#include "cli/interrupt.h"
#include "cli/load_model.h"
#include "cli/terminal_text.h"
#include "library/node_ranks.h"

namespace fourfold::cli {

int run_rank(const RankCommandOptions& options, const Console& console) {
  ignore_broken_pipes();
  if (!(options.wait >= 0 && options.wait <= 1e6))
    fail(Code::invalid_request, "--wait {}: 0 to 1000000 seconds", options.wait);
  if (options.first_cpu < 0 || options.threads < 0 || options.gpu < 0)
    fail(Code::invalid_request, "--threads {}, --first-cpu {}, --gpu {}: 0 or more", options.threads,
         options.first_cpu, options.gpu);
  LoadDisplay display(BackendOptions{.strict = options.strict}, console);
  const library::RankSetup setup{.threads = options.threads,
                                 .first_cpu = options.first_cpu,
                                 .gpu = options.gpu,
                                 .open =
                                     [&](const std::string& given) {
                                       return fetch_and_open_model(
                                           options.model.empty() ? given : options.model, console,
                                           options.strict);
                                     },
                                 .listener = display.listener()};
  nodes::run_worker({.leader = nodes::parse_address(options.join, "--join"),
                     .token = nodes::Token::from_file(options.token_file),
                     .version = version(),
                     .rank = options.rank,
                     .patience = std::chrono::milliseconds(static_cast<std::int64_t>(options.wait * 1000)),
                     .log =
                         [&](const std::string& line) {
                           console.err << "fourfold rank: " << terminal_safe(line) << std::endl;
                         }},
                    library::rank_model(setup));
  return kFine;
}

}  // namespace fourfold::cli
