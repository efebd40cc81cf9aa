#include "cli/bench_mtp.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "backend/cost.h"
#include "base/error.h"
#include "cli/bench_users.h"
#include "cli/build_info.h"
#include "cli/parse.h"
#include "engine/sequence.h"

namespace fourfold::cli {
namespace {

constexpr int kWarmSteps = 4;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Weights and states that a verification and its drafts must read.
double bytes_of(const backend::Program& program, int users, int drafts, std::int64_t context) {
  const auto of = [&](backend::Pass pass, int rows, int asked) {
    const backend::Cost cost = cost_of(program, pass, {users, rows, asked, static_cast<double>(context)});
    return cost.weight_bytes + cost.state_bytes;
  };
  const int rows = users * (drafts + 1);
  double bytes = of(backend::Pass::main, rows, rows);
  for (int pass = 0; pass < drafts; ++pass)
    bytes += of(backend::Pass::draft, pass == 0 ? rows : users, users);
  return bytes;
}

MtpLine measure(backend::Prepared& prepared, const MtpPlan& plan, int users, int context, int drafts) {
  Users all(prepared, users, context, plan.room);
  std::vector<double> verify, draft;
  for (int step = 0; step < kWarmSteps + plan.tokens; ++step) {
    const double verify_seconds = all.verify(drafts);
    const double draft_seconds = drafts > 0 ? all.draft(drafts) : 0;
    if (step < kWarmSteps) continue;
    verify.push_back(1e3 * verify_seconds);
    draft.push_back(1e3 * draft_seconds);
  }
  MtpLine line{.users = users, .context = context, .drafts = drafts};
  line.verify_ms = median(verify);
  line.draft_ms = median(draft);
  line.floor_share =
      bytes_of(prepared.program(), users, drafts, context) / plan.bytes_per_s / (line.step_ms() / 1e3);
  return line;
}

std::string text_of(const MtpLine& line) {
  char text[64];
  std::snprintf(text, sizeof text, "  %6d %8lld %3d %10.3f %10.3f %8.1f%%", line.users,
                static_cast<long long>(line.context), line.drafts, line.verify_ms, line.draft_ms,
                100 * line.floor_share);
  std::string out = text;
  for (const double acceptance : kAcceptances) {
    std::snprintf(text, sizeof text, " %9.1f", line.tokens_per_second(acceptance));
    out += text;
  }
  if (line.drafts == 0 || line.plain_ms == 0) return out + "         -\n";
  const double even = acceptance_for(line.step_ms() / line.plain_ms, line.drafts);
  if (even > 1) return out + "     never\n";
  std::snprintf(text, sizeof text, " %9.2f\n", even);
  return out + text;
}

void write(const std::vector<MtpLine>& lines, const std::string& csv, const std::string& comment) {
  std::ofstream file(csv);
  if (!file) fail(Code::io, "{}: cannot be written", csv);
  file << "# " << comment << "\n" << csv_origin() << "users,context,drafts,verify_ms,draft_ms,floor_share";
  for (const double acceptance : kAcceptances) file << ",tokens_per_s_at_" << acceptance;
  file << '\n';
  for (const MtpLine& line : lines) {
    file << line.users << ',' << line.context << ',' << line.drafts << ',' << line.verify_ms << ','
         << line.draft_ms << ',' << line.floor_share;
    for (const double acceptance : kAcceptances) file << ',' << line.tokens_per_second(acceptance);
    file << '\n';
  }
}

}  // namespace

double acceptance_for(double tokens, int drafts) {
  if (tokens > plan::tokens_of_step(1, drafts)) return 2;
  double low = 0, high = 1;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (plan::tokens_of_step(middle, drafts) < tokens ? low : high) = middle;
  }
  return high;
}

std::vector<int> parse_drafts(const std::string& text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos) return parse_counts(text, "--mtp", 0, engine::kDraftCountMax);
  const int first = parse_counts(text.substr(0, dots), "--mtp", 0, engine::kDraftCountMax).front();
  const int last = parse_counts(text.substr(dots + 2), "--mtp", first, engine::kDraftCountMax).front();
  std::vector<int> drafts;
  for (int count = first; count <= last; ++count) drafts.push_back(count);
  return drafts;
}

void bench_mtp(backend::Prepared& prepared, const MtpPlan& plan, const std::string& csv,
               const std::string& comment, const Console& console) {
  console.out
      << "  a step verifies k drafts of every user in one pass and makes k new ones; tok/s where each\n"
         "  draft stands with the chance above, and the chance at which it is as fast as without\n";
  console.out << "   users  context   k verify, ms drafts, ms  of floor";
  for (const double acceptance : kAcceptances) {
    char text[16];
    std::snprintf(text, sizeof text, " %9.1f", acceptance);
    console.out << text;
  }
  console.out << "      even\n";
  std::vector<MtpLine> lines;
  for (const int context : plan.contexts)
    for (const int users : plan.users) {
      double plain_ms = 0;
      for (const int drafts : plan.drafts) {
        MtpLine line = measure(prepared, plan, users, context, drafts);
        if (drafts == 0) plain_ms = line.step_ms();
        line.plain_ms = plain_ms;
        console.out << text_of(line) << std::flush;
        lines.push_back(line);
      }
    }
  if (!csv.empty()) write(lines, csv, comment);
}

}  // namespace fourfold::cli
