// Which parts a card gets, what is left out of them and why, and predictions beside measurements.
#include "cli/report_parts.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/report_models.h"
#include "cli/report_prediction.h"
#include "tests/cli_report/support.h"

namespace fourfold::cli {
namespace {

ReportDevice card(const char* name, const char* arch, int sms, std::int64_t mib) {
  return {.name = name,
          .chip = std::string(name) + ", " + arch,
          .arch = arch,
          .sm_count = sms,
          .free_bytes = mib << 20,
          .total_bytes = mib << 20,
          .driver = "CUDA 13.0",
          .sm_clock_mhz = 2000,
          .memory_clock_mhz = 10000,
          .unusable = {}};
}

// An H200's, without options; made once, since every model is planned for it.
const std::vector<ReportPart>& h200_parts() {
  static const auto parts = report_parts({}, card("NVIDIA H200", "sm90", 132, 143'771));
  return parts;
}

// Names of those that run, and of all.
std::string running(const std::vector<ReportPart>& parts) {
  std::string names;
  for (const ReportPart& part : parts)
    if (part.skipped.empty()) names += (names.empty() ? "" : ", ") + part.name;
  return names;
}
const ReportPart& named(const std::vector<ReportPart>& parts, const std::string& name) {
  for (const ReportPart& part : parts)
    if (part.name == name) return part;
  throw std::runtime_error("no part " + name);
}

TEST(ReportParts, ModelsThatDoNotFitAreLeftOutWithNumbers) {
  const ReportDevice small = card("NVIDIA GeForce RTX 5090", "sm120", 170, 32'607);
  const auto parts = report_parts({.out = "/data/r.json", .tune = false}, small);
  EXPECT_EQ(running(parts),
            "doctor, verify, verify large, bench moe 35b, bench moe 35b w4a4, bench moe 122b, bench moe 122b "
            "w4a4, bench moe 397b-tp4, bench moe 397b-tp4 w4a4, bench moe 397b, bench moe 397b w4a4, bench "
            "model 35b bf16, bench model 35b nvfp4");
  const std::string why = named(parts, "bench model 122b bf16").skipped;
  EXPECT_NE(why.find("it needs "), std::string::npos) << why;
  EXPECT_NE(why.find("34.2 GB may be used"), std::string::npos) << why;
  // 64 users with 4,096 tokens each do not fit beside the 35B: such lines are left out, and that is said.
  const ReportPart& fitted = named(parts, "bench model 35b bf16");
  EXPECT_NE(fitted.command.find("--users 1,2,4,8,16,32,64 --context 0,4k "), std::string::npos)
      << fitted.command;
  const std::string& less = fitted.left_out;
  EXPECT_EQ(less.rfind("for want of memory: ", 0), 0u) << less;
  EXPECT_NE(less.find("64 users with 4,096 tokens of context ("), std::string::npos) << less;
  EXPECT_EQ(less.find("8 users with"), std::string::npos) << less;
  EXPECT_EQ(named(parts, "bench model 35b nvfp4").left_out.rfind("for want of memory: ", 0), 0u);
  EXPECT_EQ(named(parts, "tune 35b").skipped, "--no-tune");
  // The tuning file lies beside the report.
  const ReportPart tune = named(report_parts({.out = "/data/r.json"}, small), "tune 35b");
  EXPECT_EQ(tune.skipped, "");
  EXPECT_EQ(tune.tuning_file, "/data/fourfold-tuned-geforce-rtx-5090.json");
  const TestFolder folder;
  EXPECT_EQ(tuning_path({.tune_out = folder.path().string()}, small),
            folder.path() / "nvidia-geforce-rtx-5090-sm120.json");
  EXPECT_NE(tune.command.find("--dense bf16 --users 1,2,4,8,16 "), std::string::npos) << tune.command;
  EXPECT_NE(tune.command.find("--out /data/fourfold-tuned-geforce-rtx-5090.json"), std::string::npos);
  EXPECT_EQ(named(parts, "bench moe 35b").result_file, "moe-geforce-rtx-5090-35b.csv");
  EXPECT_EQ(named(parts, "verify large").result_file, "verify-large-geforce-rtx-5090.json");
}

// Without FP4 tensor cores no W4A4: emulated, its times say nothing. Tuning goes before what it makes faster.
TEST(ReportParts, AnH200HasRoomForMoreAndNoW4a4) {
  const auto& parts = h200_parts();
  EXPECT_EQ(
      running(parts),
      "doctor, verify, verify large, bench moe 35b, bench moe 122b, bench moe 397b-tp4, bench moe 397b, "
      "tune 35b, bench model 35b bf16, bench model 35b nvfp4, bench model 122b bf16, bench model 122b "
      "nvfp4, bench model 397b-tp4 bf16, bench model gpt-oss-120b bf16, bench model glm-4.5-air bf16, bench "
      "model minimax-m2 bf16, bench model mistral-small-4 bf16");
  // Of MiniMax-M2's contexts one user's fits beside its weights; the others are named.
  const ReportPart& large = named(parts, "bench model minimax-m2 bf16");
  EXPECT_EQ(large.result_file, "model-h200-minimax-m2-bf16.csv");
  EXPECT_NE(large.left_out.find("64 users with 8,192 tokens of context ("), std::string::npos);
  EXPECT_EQ(large.left_out.find("1 user with 8,192"), std::string::npos) << large.left_out;
  EXPECT_EQ(named(parts, "bench model gpt-oss-120b bf16").left_out, "");
  EXPECT_FALSE(named(parts, "bench model 397b nvfp4").skipped.empty());
  EXPECT_NE(named(parts, "bench model 35b bf16").command.find("--users 1,2,4,8,16,32,64 "),
            std::string::npos);
  EXPECT_EQ(named(parts, "bench model 35b bf16").result_file, "model-h200-35b-bf16.csv");
}

// What --quick leaves out is listed with that reason, as a part or within one.
TEST(ReportParts, QuickIsLessAndSaysSo) {
  const auto parts = report_parts({.quick = true}, card("NVIDIA H200", "sm90", 132, 143'771));
  EXPECT_EQ(running(parts), "doctor, verify, bench moe 35b, tune 35b, bench model 35b bf16");
  const auto& all = h200_parts();
  ASSERT_EQ(parts.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(parts[i].name, all[i].name);
    const std::string& why = parts[i].skipped.empty() ? parts[i].left_out : parts[i].skipped;
    if (all[i].skipped.empty()) {
      EXPECT_NE(why.find("--quick"), std::string::npos) << parts[i].name;
      EXPECT_EQ(all[i].left_out.find("--quick"), std::string::npos) << all[i].name;
    }
  }
}

TEST(ReportParts, ACardWithoutOurKernelsIsLookedAt) {
  ReportDevice device{.name = "GPU 0"};
  device.unusable = "sm89 has no rows";
  const auto parts = report_parts({}, device);
  EXPECT_EQ(running(parts), "doctor");
  EXPECT_EQ(named(parts, "verify").skipped, "sm89 has no rows");
}

TEST(ReportParts, TheSimulatorHasNoTime) {
  const auto parts = report_parts({.device = "sim", .quick = true}, {.name = "simulator"});
  EXPECT_EQ(running(parts), "doctor, verify, bench model tiny on the CPU");
  EXPECT_NE(named(parts, "bench moe 35b").skipped.find("needs a GPU"), std::string::npos);
  EXPECT_NE(named(parts, "tune tiny").skipped.find("needs a GPU"), std::string::npos);
}

TEST(ReportParts, ADeviceIsToldAndRead) {
  const ReportDevice device = device_of(
      R"({"name":"NVIDIA GB10","chip":"NVIDIA GB10, sm121","arch":"sm121","sm_count":48,"free_bytes":5,)"
      R"("total_bytes":128000000000,"driver":"CUDA 13.0","sm_clock_mhz":2,"memory_clock_mhz":3})");
  EXPECT_EQ(device.card(), "gb10");
  EXPECT_EQ(device.sm_count, 48);
  EXPECT_EQ(device.total_bytes, 128'000'000'000);
  EXPECT_THROW(device_of("{"), Error);
}

// The step of the 35B for one user took 1.809 ms on an H200 (bench/results/model-h200-35b-bf16.csv).
TEST(ReportPrediction, OfAStepOrWhyNot) {
  const Prediction step = predict_line({"NVIDIA H200", "35b", "bf16", "decode", 1, 0});
  EXPECT_EQ(step.none, "");
  EXPECT_LT(step.low_ms, 1.809);
  EXPECT_GT(step.high_ms, 1.809);
  EXPECT_NE(step.by.find("--model 35b --gpu H200"), std::string::npos) << step.by;
  const auto why = [](const PredictedLine& line) { return predict_line(line).none; };
  EXPECT_EQ(why({"NVIDIA H200", "35b", "bf16", "prompt", 1, 2048}), "");
  EXPECT_NE(why({"NVIDIA H200", "35b", "bf16", "decode", 513, 0}).find("513 rows a step"), std::string::npos);
  EXPECT_NE(why({"NVIDIA Z9", "35b", "bf16", "decode", 1, 0}).find("NVIDIA Z9 is not in"), std::string::npos);
  // A rank of four took 2.80 ms without the others (model-h200-397b-tp4-bf16.csv).
  const Prediction rank = predict_line({"NVIDIA H200", "397b-tp4", "bf16", "decode", 1, 0});
  EXPECT_EQ(rank.none, "");
  EXPECT_LT(rank.low_ms, 2.80393);
  EXPECT_GT(rank.high_ms, 2.80393);
  EXPECT_LT(rank.high_ms, 1.5 * rank.low_ms);
}

// Only a file that this run has made is used by its benches: another may lie there.
TEST(ReportParts, ModelsRunByTheTuningOfThisRun) {
  const TestFolder folder;
  const auto parts = report_parts({.out = folder / "r.json"}, card("NVIDIA H200", "sm90", 132, 143'771));
  const auto& model = named(parts, "bench model 35b bf16");
  boost::json::object before, tuned, after;
  model.keep({}, folder.path(), before);
  EXPECT_FALSE(before.contains("tuned_by"));
  std::ofstream(folder / "fourfold-tuned-h200.json") << "{\"choices\": []}\n";
  named(parts, "tune 35b").keep({}, folder.path(), tuned);
  EXPECT_EQ(tuned.at("tuning_file").as_string(), folder / "fourfold-tuned-h200.json");
  EXPECT_EQ(tuned.at("tuning").as_array().at(0).as_string(), "{\"choices\": []}");
  EXPECT_EQ(tuned.at("headline").as_string(), "0 choices other than the defaults");
  model.keep({}, folder.path(), after);
  EXPECT_EQ(after.at("tuned_by").as_string(), folder / "fourfold-tuned-h200.json");
}

// A table as `bench model` writes it, measured beside predicted.
TEST(ReportParts, PredictionsStandBesideMeasurements) {
  const TestFolder folder;
  std::ofstream(folder.path() / kReportTable)
      << "# about\nwhat,users,context,tokens_per_s,ms,floor_share\n"
         "decode,1,0,513.7,1.947,0.5\nprompt,1,2048,53208,38.49,0\ndecode,513,0,1,1,0\n";
  const auto& parts = h200_parts();
  boost::json::object kept;
  named(parts, "bench model 35b bf16").keep({}, folder.path(), kept);
  const auto& lines = kept.at("lines").as_array();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].at("ms").as_double(), 1.947);
  EXPECT_LT(lines[0].at("predicted_ms").at(0).as_double(), 1.947);
  EXPECT_GT(lines[0].at("predicted_ms").at(1).as_double(), 1.947);
  EXPECT_LT(lines[1].at("predicted_ms").at(0).as_double(), 38.49);
  EXPECT_GT(lines[1].at("predicted_ms").at(1).as_double(), 38.49);
  EXPECT_TRUE(lines[2].at("predicted_ms").is_null());
  const std::string headline(kept.at("headline").as_string());
  EXPECT_EQ(headline.rfind("1 user 514 tok/s (predicted 4", 0), 0u) << headline;
  EXPECT_NE(headline.find("), 513 users 513,000 tok/s, prompt of 2,048 tokens 53,209 tok/s (predicted "),
            std::string::npos)
      << headline;
  EXPECT_FALSE(lines[2].at("not_predicted").as_string().empty());
}

// The same for a layer; what was never held against a measurement is not predicted.
TEST(ReportParts, LayersHavePredictions) {
  const TestFolder folder;
  std::ofstream(folder.path() / kReportTable)
      << "# machine: x\nshape,format,routing,tokens,role,part,rows,microseconds\n"
         "\"35b\",nvfp4,uniform,64,decode,layer,r,112.318\n\"35b\",nvfp4,zipf,1024,prefill,layer,r,232.1\n";
  const auto lines_of_part = [&](const std::vector<ReportPart>& parts, const char* name) {
    boost::json::object kept;
    named(parts, name).keep({}, folder.path(), kept);
    return kept.at("lines").as_array();
  };
  for (const auto& line : lines_of_part(h200_parts(), "bench moe 35b")) {
    EXPECT_LT(line.at("predicted_us").at(0).as_double(), line.at("microseconds").as_double());
    EXPECT_GT(line.at("predicted_us").at(1).as_double(), line.at("microseconds").as_double());
    EXPECT_LT(line.at("predicted_us").at(1).as_double(), 1.5 * line.at("predicted_us").at(0).as_double());
  }
  boost::json::object kept;
  named(h200_parts(), "bench moe 35b").keep({}, folder.path(), kept);
  const std::string headline(kept.at("headline").as_string());
  EXPECT_EQ(headline.rfind("64 tokens 112 us (predicted ", 0), 0u) << headline;
  EXPECT_EQ(headline.find("1,024"), std::string::npos) << "zipf: " << headline;
  const auto parts = report_parts({.quick = true}, card("NVIDIA GeForce RTX 5090", "sm120", 170, 32'607));
  const auto w4a16 = lines_of_part(parts, "bench moe 35b"), w4a4 = lines_of_part(parts, "bench moe 35b w4a4");
  EXPECT_GT(w4a16[0].at("predicted_us").at(0).as_double(), 112);
  EXPECT_NE(w4a4[0].at("not_predicted").as_string().find("W4A4 were never measured"), std::string::npos);
  EXPECT_TRUE(w4a4[0].at("predicted_us").is_null());
  // A prompt's rows by their instructions: FP4 has fewer, though the experts' bytes take most of it here.
  EXPECT_GT(w4a16[1].at("predicted_us").at(0).as_double(), w4a4[1].at("predicted_us").at(0).as_double());
  EXPECT_GT(w4a16[1].at("predicted_us").at(1).as_double(),
            1.2 * w4a4[1].at("predicted_us").at(1).as_double());
}

}  // namespace
}  // namespace fourfold::cli
