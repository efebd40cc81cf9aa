// The report's file with parts made for the test: failures, secrets, interruption, places.
#include "cli/report_command.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "cli/report_file.h"
#include "tests/cli_report/support.h"

namespace fourfold::cli {
namespace {

using Folder = std::filesystem::path;

ReportPart part(const std::string& name, std::function<int(const Console&, const Folder&)> run) {
  return {.name = name,
          .command = "fourfold " + name,
          .seconds = 1,
          .skipped = {},
          .run = std::move(run),
          .keep = {}};
}

ReportPart fine(const std::string& name) {
  return part(name, [name](const Console& console, const Folder&) {
    console.out << name << " says this\n";
    return static_cast<int>(kFine);
  });
}

ReportOptions to(const std::string& path) {
  ReportOptions options;
  options.device = "sim";
  options.out = path;
  return options;
}

const ReportDevice kSimulator{.name = "simulator"};

TEST(Report, EveryPartHasItsOwnStatus) {
  const TestFolder folder;
  Captured captured;
  std::vector<ReportPart> parts{fine("first")};
  parts.push_back(part("wrong", [](const Console& console, const Folder&) -> int {
    console.out << "a line before\n";
    fail_with_hint(Code::out_of_memory, "Buy more.", "{} GB are missing", 7);
  }));
  parts.push_back(part("crash", [](const Console& console, const Folder&) -> int {
    console.err << "illegal instruction at 0x10\n" << std::flush;
    ::signal(SIGSEGV, SIG_DFL);
    ::raise(SIGSEGV);
    return kFine;
  }));
  parts.push_back(part("miss", [](const Console&, const Folder&) { return static_cast<int>(kMiss); }));
  parts.push_back(fine("left out"));
  parts.back().skipped = "it is too large";
  parts.push_back(fine("last"));
  EXPECT_EQ(write_report(to(folder / "r.json"), kSimulator, parts, captured.console), kMiss);
  const Json report = read_json(text_of(folder / "r.json"));
  EXPECT_EQ(report.at("format").number, 1);
  EXPECT_FALSE(report.at("version").text.empty());
  EXPECT_FALSE(report.at("commit").text.empty());
  EXPECT_FALSE(report.at("build").at("compiler").text.empty());
  EXPECT_EQ(report.at("device").at("name").text, "simulator");
  EXPECT_EQ(report.at("parts").items.size(), 6u);
  EXPECT_EQ(status_of(report, "first"), "done");
  EXPECT_EQ(part_of(report, "first").at("output").items.at(0).text, "first says this");
  EXPECT_EQ(part_of(report, "first").at("command").text, "fourfold first");
  EXPECT_EQ(status_of(report, "wrong"), "failed");
  EXPECT_EQ(part_of(report, "wrong").at("error").text, "7 GB are missing");
  EXPECT_EQ(part_of(report, "wrong").at("output").items.at(0).text, "a line before");
  EXPECT_EQ(status_of(report, "crash"), "failed");
  EXPECT_EQ(part_of(report, "crash").at("error").text,
            "ended by signal 11 (Segmentation fault): illegal instruction at 0x10");
  EXPECT_EQ(status_of(report, "miss"), "missed");
  EXPECT_EQ(status_of(report, "left out"), "skipped");
  EXPECT_EQ(part_of(report, "left out").at("reason").text, "it is too large");
  EXPECT_EQ(status_of(report, "last"), "done");
  // The time before, and each part as it begins and ends.
  const std::string said = captured.err.str();
  EXPECT_NE(said.find("report: 6 parts, about 5 s"), std::string::npos) << said;
  EXPECT_NE(said.find("report: 2 of 6: wrong, about 1 s"), std::string::npos) << said;
  EXPECT_NE(said.find("report: wrong: failed in 0 s: 7 GB are missing"), std::string::npos) << said;
}

TEST(Report, AHangingPartIsEnded) {
  const TestFolder folder;
  Captured captured;
  ReportOptions options = to(folder / "r.json");
  options.part_minutes = 0.005;
  EXPECT_EQ(write_report(options, kSimulator,
                         {part("hang",
                               [](const Console&, const Folder&) {
                                 std::this_thread::sleep_for(std::chrono::seconds(60));
                                 return static_cast<int>(kFine);
                               }),
                          fine("last")},
                         captured.console),
            kMiss);
  const Json report = read_json(text_of(options.out));
  EXPECT_EQ(status_of(report, "hang"), "out of time");
  EXPECT_EQ(status_of(report, "last"), "done");
}

// Of a person, a machine or an account, in every place that a part can write to.
TEST(Report, SecretsAreTakenOutOfEveryPart) {
  const TestFolder folder;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  ::setenv("HF_TOKEN", "abcdefgh-planted-token", 1);
  ::setenv("SOME_API_KEY", "k3y/with\"quote", 1);
  ::setenv("HOME", "/data/anna-home", 1);
  const std::vector<std::string> secrets{"abcdefgh-planted-token",
                                         "k3y/with\"quote",
                                         "/data/anna-home",
                                         "/home/berta",
                                         "8c3f0e1a-1b2c-4d5e-8f90-a1b2c3d4e5f6",
                                         "GPU-1a2b3c4d",
                                         "1320123456789",
                                         "d8:5e:d3:01:ab:cd",
                                         "192.168.17.23",
                                         "fe80::1ff:fe23:4567:890a",
                                         "anna@example.org",
                                         "hf_QqRrSsTtUuVvWwXxYyZz",
                                         "0123456789abcdef0123"};
  std::string planted =
      std::string("on ") + host + ", Bearer 0123456789abcdef0123, Serial Number : 1320123456789";
  for (const std::string& secret : secrets)
    if (secret != "1320123456789" && secret != "0123456789abcdef0123") planted += ", " + secret;
  ReportPart everywhere = part("everywhere", [planted](const Console& console, const Folder& here) {
    std::ofstream(here / "file.txt") << planted << "\n";
    console.out << planted << "\n";
    console.err << planted << "\n";
    return static_cast<int>(kFine);
  });
  everywhere.keep = [](const Apart& ended, const Folder& here, boost::json::object& kept) {
    kept["result"] = boost::json::object{{"deep", boost::json::array{ended.out}}};
    kept["recording"] = lines_of(text_of((here / "file.txt").string()));
  };
  everywhere.result_file = "result.txt";
  everywhere.result_source = "file.txt";
  ReportPart failing =
      part("failing", [planted](const Console&, const Folder&) -> int { throw Error(Code::io, planted); });
  ReportPart skipped = fine("skipped");
  skipped.skipped = planted;
  ReportDevice device = kSimulator;
  device.unusable = planted;
  Captured captured;
  ReportOptions options = to(folder / "r.json");
  options.results = folder / "results";
  EXPECT_EQ(write_report(options, device, {everywhere, failing, skipped}, captured.console), kMiss);
  const std::string whole = text_of(options.out) + text_of(folder / "results/result.txt");
  read_json(text_of(options.out));
  for (const std::string& secret : secrets) {
    EXPECT_EQ(whole.find(secret), std::string::npos) << secret;
    EXPECT_EQ(whole.find(secret.substr(0, 7)), std::string::npos) << secret;
  }
  EXPECT_EQ(whole.find("k3y"), std::string::npos);  // its quote is escaped in JSON
  const std::string name = host;
  if (name.size() >= 3 && name != "localhost") {
    EXPECT_EQ(whole.find(name), std::string::npos) << name;
  }
  EXPECT_NE(whole.find("user@host"), std::string::npos);
  EXPECT_NE(text_of(folder / "results/result.txt").find("Bearer (secret)"), std::string::npos);
}

TEST(Report, AnInterruptLeavesAValidFile) {
  const TestFolder folder;
  Captured captured;
  const pid_t here = ::getpid();
  EXPECT_EQ(write_report(to(folder / "r.json"), kSimulator,
                         {fine("first"),
                          part("long",
                               [here](const Console& console, const Folder&) {
                                 console.out << "begun\n" << std::flush;
                                 ::kill(here, SIGINT);
                                 std::this_thread::sleep_for(std::chrono::seconds(60));
                                 return static_cast<int>(kFine);
                               }),
                          fine("last")},
                         captured.console),
            kFailed);
  const Json report = read_json(text_of(folder / "r.json"));
  EXPECT_EQ(status_of(report, "first"), "done");
  EXPECT_EQ(status_of(report, "long"), "stopped");
  EXPECT_EQ(part_of(report, "long").at("output").items.at(0).text, "begun");
  EXPECT_EQ(status_of(report, "last"), "not run");
  EXPECT_NE(captured.err.str().find("has what was done until then"), std::string::npos) << captured.err.str();
}

// Whoever ends the program by force finds what was done, and which part it was.
TEST(Report, IsWholeWhileAPartRuns) {
  const TestFolder folder;
  Captured captured;
  const std::string path = folder / "r.json";
  const int status = write_report(to(path), kSimulator,
                                  {fine("first"),
                                   part("looks",
                                        [path](const Console& console, const Folder&) {
                                          const Json so_far = read_json(text_of(path));
                                          console.out << status_of(so_far, "first") << "\n"
                                                      << status_of(so_far, "looks") << "\n"
                                                      << status_of(so_far, "last") << "\n";
                                          return static_cast<int>(kFine);
                                        }),
                                   fine("last")},
                                  captured.console);
  EXPECT_EQ(status, kFine) << text_of(path);
  const Json report = read_json(text_of(path));
  const auto& seen = part_of(report, "looks").at("output").items;
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].text, "done");
  EXPECT_EQ(seen[1].text, "running");
  EXPECT_EQ(seen[2].text, "not run");
}

TEST(Report, PlacesThatCannotBeWritten) {
  const TestFolder folder;
  Captured captured;
  const auto refused = [&](const ReportOptions& options, const char* words) {
    try {
      write_report(options, kSimulator, {fine("first")}, captured.console);
      ADD_FAILURE() << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused(to(folder / "none/r.json"), "there is no folder");
  refused(to(folder.path().string()), "is a folder");
  std::ofstream(folder / "r.json") << "mine\n";
  refused(to(folder / "r.json"), "is there already");
  EXPECT_EQ(text_of(folder / "r.json"), "mine\n");
  ReportOptions forced = to(folder / "r.json");
  forced.force = true;
  EXPECT_EQ(write_report(forced, kSimulator, {fine("first")}, captured.console), kFine);
  EXPECT_EQ(status_of(read_json(text_of(folder / "r.json")), "first"), "done");
}

TEST(Report, OptionsThatContradict) {
  Captured captured;
  const auto refused = [&](const ReportOptions& options) {
    EXPECT_THROW(run_report(options, captured.console), Error);
  };
  refused({.device = "tpu"});
  refused({.device = "sim", .tune_out = "x"});
  refused({.device = "sim", .part_minutes = 0});
}

TEST(ReportFile, LinesAndTables) {
  EXPECT_EQ(lines_of("a\n\nb").size(), 3u);
  EXPECT_TRUE(lines_of("").empty());
  const auto rows = rows_of_csv("# about\nshape,us,rows\n\"1,2,3,4\",2.5,moe_stream 64\n35b,1e-2,x\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("shape").as_string(), "1,2,3,4");
  EXPECT_EQ(rows[0].at("us").as_double(), 2.5);
  EXPECT_EQ(rows[0].at("rows").as_string(), "moe_stream 64");
  EXPECT_EQ(rows[1].at("us").as_double(), 0.01);
}

}  // namespace
}  // namespace fourfold::cli
