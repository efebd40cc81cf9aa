// docs/doctor.md, written from the rules.
#include "base/format.h"
#include "doctor/log_lines.h"
#include "doctor/model_facts.h"
#include "doctor/show.h"
#include "plan/text.h"

namespace fourfold::doctor {
namespace {

constexpr std::string_view kIntroduction = R"(# fourfold doctor

<!-- Written by `fourfold doctor --rules`; a test keeps this page equal to the rules. Do not edit it by hand. -->

Why is this machine slow, and what can be done? One command answers, with or without a GPU, model or server:

```
fourfold doctor                            this machine: GPUs, driver, platform, environment
fourfold doctor --log FILE                 and a log of vLLM, SGLang, FlashInfer, TensorRT-LLM or llama.cpp (-: stdin)
fourfold doctor --scan DIR                 and the GPU code in shared objects and JIT caches below DIR
fourfold doctor --model DIR --measured 55  and how far 55 tok/s are from what memory allows
fourfold doctor --url http://HOST:PORT     and a short measured run of a server; twice compares two
fourfold doctor --record DIR               keep what was found, names and serials taken out, for others to look at
fourfold doctor --root DIR                 judge such a recording instead of this machine
fourfold env --gpus 4 --for vllm           the environment and launch line we would use here, with reasons
```

`--json` is for machines, `--markdown` for forums, `--quick` leaves the GPU measurements out. The exit code is 0 when
all is fine (notes do not count), 1 when something costs speed, 2 when something is broken, 64 when the command line is
wrong or names a file that cannot be read.

A fact that could not be found is unknown: the rules that hang on it are listed as unknown, never guessed. Each finding
says how sure we are: *certain* (measured by us, or the vendor's documentation), *likely* (follows from documented
behaviour), *reported* (owners say so; we could not repeat it). No SM120 GPU was at hand when these rules were written.

Values between GPUs (peer-to-peer copies compared byte by byte) and memory bandwidth are measured where fourfold was
built with CUDA and a GPU is there. `--url` speaks plain http to OpenAI-compatible servers that stream: two prompts, one
user, thinking off and on. Trivial thinking tokens are easy to draft and make a server look faster, so the number with
thinking off is the one that counts.
)";

std::string code(std::string_view text) { return "`" + std::string(text) + "`"; }

std::string rule_text(const Rule& rule) {
  std::string scope = rule.each.empty() ? "" : rule.each == "gpu" ? " Each GPU." : " Each server.";
  std::string out = fourfold::format("\n### {}\n\n**{}**, {}.{}\n\n", rule.id, level_name(rule.level),
                                     sure_name(rule.sure), scope);
  if (!rule.applies.empty()) out += fourfold::format("- asked when {}\n", code(rule.applies));
  out += fourfold::format("- a fault when {}\n", code(rule.fault));
  const auto line = [&](const char* name, std::string_view text) {
    out += fourfold::format("- {}: {}\n", name, text);
  };
  line("found", rule.found);
  line("expected", rule.expected);
  line("costs", rule.cost);
  line("do", rule.advice);
  out += fourfold::format("- evidence: {}{}\n", rule.evidence, markdown_link(rule));
  return out;
}

}  // namespace

std::string rules_page() {
  std::string out(kIntroduction);
  out +=
      fourfold::format("\n## Rules\n\n{} rules; names in braces are facts of the machine.\n", rules().size());
  const Area* area = nullptr;
  for (const Rule& rule : rules()) {
    if (area == nullptr || *area != rule.area)
      out += fourfold::format("\n## Rules: {}\n", area_name(rule.area));
    area = &rule.area;
    out += rule_text(rule);
  }
  out +=
      "\n## Log lines\n\nText that is looked for, and the fact it counts in.\n\n| text | fact |\n|---|---|\n";
  for (const LogLine& line : kLogLines)
    out += fourfold::format("| {}{} | log.{} |\n", code(line.text),
                            line.also.empty() ? "" : " with " + code(line.also), line.fact);
  out +=
      "\n## Published results\n\nOne user, no drafts; what `--measured` is compared with where model and "
      "machine are "
      "the same.\n\n| model | machine | tok/s | how |\n|---|---|---|---|\n";
  for (const Published& result : published_results())
    out += fourfold::format("| Qwen3.5 {} | {} x {} | {} | {} ([source]({})) |\n", result.size, result.gpus,
                            result.product, result.tok_per_s, result.how, result.source);
  return out;
}

}  // namespace fourfold::doctor
