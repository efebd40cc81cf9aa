// The report's file with parts made for the test: failures, secrets, interruption, places.
#include "cli/report_command.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "cli/report_file.h"
#include "cli/report_headline.h"
#include "cli/report_status.h"
#include "cli/report_verify.h"
#include "tests/cli_report/support.h"

namespace fourfold::cli {
namespace {

using Folder = std::filesystem::path;

ReportPart part(const std::string& name, std::function<int(const Console&, const Folder&)> run) {
  ReportPart out;
  out.name = name;
  out.command = "fourfold " + name;
  out.seconds = 1;
  out.run = std::move(run);
  return out;
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

// The account's own name; root's is nobody's, then it is the one behind it.
std::string name_of_user() {
  const passwd* account = ::getpwuid(::getuid());
  const std::string name = account == nullptr ? "root" : account->pw_name;
  if (name != "root") return name;
  ::setenv("SUDO_USER", "plantedname", 1);
  return "plantedname";
}

// Of a person, a machine or an account, in every place that a part can write to.
TEST(Report, SecretsAreTakenOutOfEveryPart) {
  const TestFolder folder;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  ::setenv("HF_TOKEN", "abcdefgh-planted-token", 1);
  ::setenv("SOME_API_KEY", "k3y/with\"quote", 1);
  ::setenv("HOME", "/data/anna-home", 1);
  const std::string user = name_of_user();
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
                                         "0000:3b:00.0",
                                         "00000000:AF:00.0",
                                         "anna@example.org",
                                         "hf_QqRrSsTtUuVvWwXxYyZz",
                                         "0123456789abcdef0123"};
  std::string planted = std::string("on ") + host + " as " + user +
                        ", Bearer 0123456789abcdef0123, Serial Number : 1320123456789";
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
    EXPECT_EQ(whole.find(secret.substr(0, 9)), std::string::npos) << secret;
  }
  EXPECT_EQ(whole.find("k3y"), std::string::npos);  // its quote is escaped in JSON
  EXPECT_EQ(whole.find(user), std::string::npos) << user;
  ::unsetenv("SUDO_USER");
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

// Nothing runs where nothing can be kept.
TEST(Report, AFullDiskOrAForeignFolderIsAnError) {
  const TestFolder folder;
  for (const char* path : {"/dev/full", "/proc/report-of-fourfold.json"}) {
    Captured captured;
    const std::string mark = folder / "ran";
    ReportOptions options = to(path);
    options.tune = false;
    try {
      write_report(options, kSimulator,
                   {part("first",
                         [mark](const Console&, const Folder&) {
                           std::ofstream(mark) << "x";
                           return static_cast<int>(kFine);
                         })},
                   captured.console);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_NE(said.find(path), std::string::npos) << said;
      EXPECT_TRUE(said.find("cannot write") != std::string::npos ||
                  said.find("cannot be written") != std::string::npos)
          << said;
    }
    EXPECT_FALSE(std::filesystem::exists(mark));
  }
}

// A disk that fills up between two parts: what was written stays whole, and the error says so.
TEST(Report, ADiskThatFillsUpLeavesTheLastWholeFile) {
  const TestFolder folder;
  Captured captured;
  const auto long_part = [](const std::string& name) {
    return part(name, [](const Console& console, const Folder&) {
      for (int i = 0; i < 50; ++i) console.out << "a line of some forty letters, again and again\n";
      return static_cast<int>(kFine);
    });
  };
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{6000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string said, hint;
  try {
    write_report(to(folder / "r.json"), kSimulator, {long_part("first"), long_part("second"), fine("last")},
                 captured.console);
  } catch (const Error& error) {
    said = error.what();
    hint = error.hint();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(said.find("r.json: File too large"), std::string::npos) << said;
  EXPECT_NE(hint.find("still has what was written before"), std::string::npos) << hint;
  const Json report = read_json(text_of(folder / "r.json"));
  EXPECT_EQ(status_of(report, "first"), "done");
  EXPECT_EQ(status_of(report, "second"), "running");
  EXPECT_EQ(status_of(report, "last"), "not run");
  EXPECT_FALSE(std::filesystem::exists(folder / "r.json.new"));
}

// What a part wrote and what cannot be read, no folder for it, no place for its own file: recorded, and on.
TEST(Report, TroubleAroundAPartIsRecorded) {
  const TestFolder folder;
  Captured captured;
  ReportPart unread = fine("unread");
  unread.keep = [](const Apart&, const Folder&, boost::json::object&) {
    fail(Code::invalid_request, "no JSON at byte 3");
  };
  ReportPart unplaced = fine("unplaced");
  unplaced.keep = [](const Apart&, const Folder&, boost::json::object& kept) { kept["result"] = 1; };
  unplaced.result_file = "taken";
  ReportOptions options = to(folder / "r.json");
  options.results = folder / "results";
  std::filesystem::create_directories(folder / "results/taken/by");
  EXPECT_EQ(write_report(options, kSimulator, {unread, unplaced, fine("last")}, captured.console), kMiss);
  Json report = read_json(text_of(options.out));
  EXPECT_EQ(status_of(report, "unread"), "failed");
  EXPECT_EQ(part_of(report, "unread").at("error").text, "what it wrote cannot be read: no JSON at byte 3");
  EXPECT_EQ(part_of(report, "unread").at("output").items.at(0).text, "unread says this");
  EXPECT_EQ(status_of(report, "unplaced"), "done");
  EXPECT_NE(part_of(report, "unplaced").at("results_error").text.find("taken"), std::string::npos);
  EXPECT_EQ(status_of(report, "last"), "done");

  options.force = true;
  ::setenv("TMPDIR", "/proc", 1);
  EXPECT_EQ(write_report(options, kSimulator, {fine("first"), fine("last")}, captured.console), kMiss);
  ::unsetenv("TMPDIR");
  report = read_json(text_of(options.out));
  for (const char* name : {"first", "last"})
    EXPECT_NE(part_of(report, name).at("error").text.find("/proc/fourfold-report-"), std::string::npos);
}

// A process that no signal ends holds the GPU: what needs it is left out, the rest goes on.
TEST(Report, AStuckPartKeepsOthersFromTheGpu) {
  const TestFolder folder;
  Captured captured;
  ReportPart stuck = part("stuck", [](const Console&, const Folder&) {
    return traced_by_a_sleeper() ? static_cast<int>(kFine) : static_cast<int>(kMiss);
  });
  ReportPart gpu = fine("on the GPU");
  gpu.uses_gpu = true;
  ReportOptions options = to(folder / "r.json");
  options.part_minutes = 0.005;
  write_report(options, kSimulator, {stuck, gpu, fine("on the CPU")}, captured.console);
  const Json report = read_json(text_of(options.out));
  if (status_of(report, "stuck") == "missed") GTEST_SKIP() << "no process may be traced here";
  EXPECT_EQ(status_of(report, "stuck"), "out of time");
  EXPECT_NE(part_of(report, "stuck").at("error").text.find("its process cannot be ended"), std::string::npos);
  EXPECT_EQ(status_of(report, "on the GPU"), "skipped");
  EXPECT_NE(part_of(report, "on the GPU").at("reason").text.find("the process of 'stuck'"),
            std::string::npos);
  EXPECT_EQ(status_of(report, "on the CPU"), "done");
  reap_all();
}

// In a place that is refused as well, later: a mistake here must not begin to measure.
TEST(Report, OptionsThatContradict) {
  const TestFolder folder;
  Captured captured;
  const auto refused = [&](ReportOptions options, const char* words) {
    options.out = folder / "none/r.json";
    try {
      run_report(options, captured.console);
      ADD_FAILURE() << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused({.device = "tpu"}, "unknown device 'tpu'");
  refused({.device = "sim", .tune = false, .tune_out = "x"}, "--tune-out x and --no-tune");
  refused({.device = "sim", .part_minutes = -1}, "--part-minutes -1");
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

// Rows of tables and lists of numbers are a line each, so that the file can be read.
TEST(ReportFile, IsReadable) {
  const boost::json::value value{{"a", {1, 2}},
                                 {"lines", {"x", "y"}},
                                 {"rows", {{{"p", 1}, {"q", nullptr}}}},
                                 {"deep", {{{"o", {{"z", true}}}}}},
                                 {"none", boost::json::array{}}};
  EXPECT_EQ(json_text(value),
            "{\n \"a\": [1, 2],\n \"lines\": [\n  \"x\",\n  \"y\"\n ],\n \"rows\": [\n  {\"p\": 1, \"q\": "
            "null}\n ],\n"
            " \"deep\": [\n  {\n   \"o\": {\n    \"z\": true\n   }\n  }\n ],\n \"none\": []\n}\n");
}

TEST(ReportStatus, TheErrorIsTheLastOfOurLines) {
  Apart ended;
  ended.status = kFailed;
  ended.err = "fourfold: tuned by x.json\nfourfold: notice: slow\nfourfold: 7 GB are missing\n  Buy more.\n";
  EXPECT_EQ(error_of(ended), "7 GB are missing");
  ended.err = "terminate called\n\n";
  EXPECT_EQ(error_of(ended), "terminate called");
  ended.err = "";
  EXPECT_EQ(error_of(ended), "ended with status 2");
}

TEST(ReportVerify, ALineARowAndOperation) {
  const auto proof = [](const char* row, double error, const char* verdict) {
    return boost::json::object{{"kernel", "k"},       {"row", row},     {"op", "o"},
                               {"machine", "m"},      {"shape", "s"},   {"seed", 7},
                               {"max_error", error},  {"bound", 0.5},   {"bits_exact", true},
                               {"bit_mismatches", 0}, {"compared", 10}, {"verdict", verdict}};
  };
  const boost::json::object short_one = summarised_verify(
      {{"passed", false},
       {"rows", {proof("r1", 0.25, "pass"), proof("r2", 1.0, "miss"), proof("r1", 0.1, "pass")}},
       {"comparisons",
        {{{"bytes", 5}, {"different", 0}, {"verdict", "pass"}},
         {{"bytes", 6}, {"different", 1}, {"verdict", "miss"}}}}});
  const auto& rows = short_one.at("rows").as_array();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("proofs").as_int64(), 2);
  EXPECT_EQ(rows[0].at("compared").as_int64(), 20);
  EXPECT_EQ(rows[0].at("worst_share_of_bound").as_double(), 0.5);
  EXPECT_EQ(rows[0].at("verdict").as_string(), "pass");
  EXPECT_EQ(rows[1].at("verdict").as_string(), "miss");
  EXPECT_EQ(rows[1].at("worst").at("seed").as_int64(), 7);
  EXPECT_EQ(short_one.at("comparisons").at("cases").as_int64(), 2);
  EXPECT_EQ(short_one.at("comparisons").at("bytes").as_int64(), 11);
  EXPECT_EQ(short_one.at("comparisons").at("missed").as_array().size(), 1u);
  EXPECT_FALSE(short_one.at("passed").as_bool());
  EXPECT_EQ(verify_headline(short_one),
            "1 of 2 rows and operations passed, 3 proofs; r2 o: miss; unlike the simulator's: 1 byte");
}

}  // namespace
}  // namespace fourfold::cli
