#include "doctor/show.h"

#include <algorithm>
#include <cctype>

#include "base/format.h"
#include "base/json_writer.h"
#include "plan/text.h"

namespace fourfold::doctor {
namespace {

constexpr int kFieldIndent = 12;

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& letter : out) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return out;
}

std::string title_of(const Finding& finding) {
  return std::string(finding.rule->id) + (finding.subject.empty() ? "" : ", " + finding.subject);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

int count_of(const Report& report, Level level) {
  return static_cast<int>(
      std::count_if(report.findings.begin(), report.findings.end(),
                    [&](const Finding& finding) { return finding.rule->level == level; }));
}

std::string summary(const Report& report) {
  return fourfold::format("{} broken, {} slow, {} to note; {} checks answered, {} unknown",
                          count_of(report, Level::broken), count_of(report, Level::slow),
                          count_of(report, Level::note), report.checks, report.unknown.size());
}

std::string finding_text(const Finding& finding) {
  // A note is a line or two; what costs speed gets the whole story.
  if (finding.rule->level == Level::note)
    return plan::paragraph(fourfold::format("{}: {}. {}", title_of(finding), finding.found, finding.advice),
                           8, "note");
  const auto field = [](const char* name, const std::string& text) {
    return plan::paragraph(text, kFieldIndent, std::string("  ") + name);
  };
  return plan::paragraph(title_of(finding), 8, upper(level_name(finding.rule->level))) +
         field("found", finding.found) + field("expected", finding.expected) + field("costs", finding.cost) +
         field("do", finding.advice) +
         field("sure", fourfold::format("{}: {}{}{}", sure_name(finding.rule->sure), finding.rule->evidence,
                                        finding.rule->link.empty() ? "" : " ", finding.rule->link));
}

}  // namespace

std::string as_text(const Report& report) {
  std::string out =
      fourfold::format("doctor: {}\n", verdict_word(report)) + plan::paragraph(report.machine) + "\n";
  int widest = 0;
  for (const Question& question : report.questions)
    widest = std::max(widest, plan::columns_of(question.asks));
  for (const Question& question : report.questions)
    out += plan::paragraph(question.answer, widest + 3, question.asks + "?");
  if (!report.about.empty()) out += "\n";
  for (const std::string& line : report.about) out += line + "\n";
  out += "\n";
  for (const Finding& finding : report.findings) out += finding_text(finding);
  if (!report.unknown.empty())
    out += plan::paragraph(joined(report.unknown) + "; root may see more", 8, "unknown");
  return out + summary(report) + "\n";
}

std::string as_markdown(const Report& report) {
  std::string out = fourfold::format("**fourfold doctor: {}** ({})\n\n| question | answer |\n|---|---|\n",
                                     verdict_word(report), report.machine);
  const auto cell = [](std::string text) {
    for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2))
      text.insert(at, "\\");
    return text;
  };
  for (const Question& question : report.questions)
    out += fourfold::format("| {}? | {} |\n", question.asks, cell(question.answer));
  out += "\n";
  for (const Finding& finding : report.findings)
    out += fourfold::format("- **{}: {}** {}.\n  - expected: {}\n  - costs: {}\n  - do: {}\n  - {}: {}{}\n",
                            level_name(finding.rule->level), title_of(finding), finding.found,
                            finding.expected, finding.cost, finding.advice, sure_name(finding.rule->sure),
                            finding.rule->evidence, markdown_link(*finding.rule));
  if (!report.about.empty()) {
    out += "\n```\n";
    for (const std::string& line : report.about) out += line + "\n";
    out += "```\n";
  }
  if (!report.unknown.empty()) out += fourfold::format("\nunknown: {}\n", joined(report.unknown));
  return out + "\n" + summary(report) + "\n";
}

std::string as_json(const Report& report) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("verdict", verdict_word(report)).member("machine", report.machine);
  json.key("questions").begin_array();
  for (const Question& question : report.questions)
    json.begin_object().member("question", question.asks).member("answer", question.answer).end_object();
  json.end_array().key("findings").begin_array();
  for (const Finding& finding : report.findings) {
    json.begin_object().member("rule", finding.rule->id).member("subject", finding.subject);
    json.member("level", level_name(finding.rule->level)).member("sure", sure_name(finding.rule->sure));
    json.member("found", finding.found).member("expected", finding.expected).member("cost", finding.cost);
    json.member("advice", finding.advice).member("link", finding.rule->link).end_object();
  }
  json.end_array().key("unknown").begin_array();
  for (const std::string& name : report.unknown) json.value(name);
  json.end_array();
  if (!report.about.empty()) {
    json.key("about").begin_array();
    for (const std::string& line : report.about) json.value(line);
    json.end_array();
  }
  return json.end_object().finish();
}

}  // namespace fourfold::doctor
