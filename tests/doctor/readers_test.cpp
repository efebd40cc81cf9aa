// What doctor reads beside the machine: logs, GPU code, recordings, and the answers of a live machine.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/format.h"
#include "base/random.h"
#include "base/thread_time.h"
#include "doctor/judge.h"
#include "doctor/kernel_images.h"
#include "doctor/kernel_scan.h"
#include "doctor/log_lines.h"
#include "doctor/log_reader.h"
#include "doctor/nvml.h"
#include "doctor/probes.h"
#include "doctor/recording.h"
#include "doctor/source.h"
#include "doctor/word_search.h"

namespace fourfold::doctor {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "fourfold-doctor-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// ---- logs ----

// The fourteen lines as their programs write them, each with the fact it must count in.
struct Dressed {
  const char* fact;
  const char* line;
};
constexpr std::array<Dressed, 14> kDressed{{
    {"log.tma_ws_init",
     "(Worker_PP0 pid=38385) 2025-11-11 06:41:27,319 - WARNING - autotuner.py:485 - flashinfer.jit: "
     "[Autotuner]: "
     "Skipping tactic <flashinfer.fused_moe.core.MoERunner object at 0x7c70ccce8350> 15, due to failure "
     "while "
     "profiling: [TensorRT-LLM][ERROR] Assertion failed: Failed to initialize cutlass TMA WS grouped gemm. "
     "Error: "
     "Error Internal (moe_gemm_sm120_M256_BS_group0.generated.cu:60)"},
    {"log.skipping_tactic",
     "(Worker_TP1 pid=2212) 2026-03-02 10:00:01,002 - WARNING - autotuner.py:490 - flashinfer.jit: "
     "[Autotuner]: "
     "Skipping tactic <flashinfer.fused_moe.core.MoERunner object at 0x7f00> [32, 15], due to failure while "
     "profiling"},
    {"log.skipped_tactics",
     "[03/14/2026-08:11:09] [TRT-LLM] [W] [Autotuner] Skipped 8 unsupported tactic(s) for "
     "trtllm::fused_moe::gemm1"},
    {"log.gemm_smem",
     "[TensorRT-LLM][WARNING] MoE grouped GEMM requires 102400 bytes shared memory but device supports "
     "101376"},
    {"log.launch_smem",
     "(EngineCore_DP0 pid=771) ERROR 07-01 09:00:00 [core.py:708] RuntimeError: launch shared memory exceeds "
     "current GPU "
     "arch sm_120a allowed. Allocated: 118784 bytes. Max: 101376"},
    {"log.marlin",
     "(Worker_TP0 pid=900) INFO 08-22 12:00:00 [nvfp4.py:231] Using 'MARLIN' NvFp4 MoE backend out of "
     "potential "
     "backends: ['FLASHINFER_CUTLASS', 'VLLM_CUTLASS', 'MARLIN']"},
    {"log.no_native_fp4",
     "(Worker_TP0 pid=900) WARNING 08-22 12:00:00 [marlin_utils_fp4.py:170] Your GPU does not have native "
     "support for FP4 "
     "computation but FP4 quantization is being used. Weight-only FP4 compression will be used leveraging "
     "the Marlin "
     "kernel."},
    {"log.no_backend",
     "(EngineCore_DP0 pid=771) ERROR 08-22 12:00:01 [core.py:708] NotImplementedError: No NvFp4 MoE backend "
     "supports the "
     "deployment configuration."},
    {"log.arch_conditional",
     "ERROR : Arch conditional MMA instruction used without targeting appropriate compute capability. "
     "Aborting."},
    {"log.tma_descriptor", "Error: Failed to initialize the TMA descriptor 715"},
    {"log.not_building", "-- Not building NVFP4 as no compatible archs were found."},
    {"log.config_missing",
     "[2026-08-01 10:10:10 TP2] Config file not found at "
     "/sgl/fused_moe/E=256,N=512,device_name=NVIDIA_RTX_PRO_6000.json. "
     "Performance might be sub-optimal!"},
    {"log.no_valid_tactics",
     "RuntimeError: No valid tactics available for fused moe op with the requested input combination."},
    {"log.ptxas_121a", "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"},
}};
constexpr const char* kOrdinary =
    "(APIServer pid=612) INFO:     127.0.0.1:40052 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK, Using 14 "
    "workers";

TEST(Log, EveryOneOfTheFourteenIsCounted) {
  for (const Dressed& dressed : kDressed) {
    Facts facts;
    read_log_text(std::string(kOrdinary) + "\n" + dressed.line + "\n" + kOrdinary, facts);
    for (const Dressed& other : kDressed) {
      // One of them is two in one line.
      const bool both = std::string_view(dressed.fact) == "log.tma_ws_init" &&
                        std::string_view(other.fact) == "log.skipping_tactic";
      EXPECT_EQ(facts.number_or(other.fact, -1), dressed.fact == other.fact || both ? 1 : 0)
          << other.fact << " in " << dressed.line;
    }
  }
}

TEST(Log, HarmlessAndCostlyAreToldApart) {
  const auto code = [](std::initializer_list<int> lines) {
    std::string text;
    for (const int line : lines) text += std::string(kDressed[static_cast<std::size_t>(line)].line) + "\n";
    Facts facts;
    gather(*recorded_source({}), facts);
    read_log_text(text, facts);
    return exit_code(judge(facts));
  };
  EXPECT_EQ(code({}), 0);
  EXPECT_EQ(code({0, 1, 2, 3}), 0);  // skipped tactics alone
  for (const int slow : {5, 6, 11})
    EXPECT_EQ(code({0, 1, slow}), 1) << kDressed[static_cast<std::size_t>(slow)].line;
  for (const int broken : {4, 7, 8, 9, 10, 12, 13})
    EXPECT_EQ(code({broken}), 2) << kDressed[static_cast<std::size_t>(broken)].line;
}

TEST(Log, NamesTheKernelTheDraftsAndTheSpeed) {
  Facts facts;
  read_log_text(
      "Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN']\n"
      "Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential backends: [...]\n"
      "non-default args: {'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 3}}\n"
      "INFO [loggers.py:257] Engine 000: Avg prompt throughput: 1.1 tokens/s, Avg generation throughput: "
      "81.4 tokens/s\n"
      "INFO [loggers.py:257] Engine 000: Avg generation throughput: 12.0 tokens/s, Running: 0 reqs\n"
      "INFO [metrics.py:100] SpecDecoding metrics: Mean acceptance length: 2.31, Accepted throughput: 45.1 "
      "tokens/s\n",
      facts);
  EXPECT_EQ(facts.get("log.kernel"), Value(std::string("FLASHINFER_CUTLASS")));
  EXPECT_EQ(facts.number_or("log.marlin", 0), 1);
  EXPECT_EQ(facts.number_or("log.drafts", 0), 3);
  EXPECT_EQ(facts.number_or("log.tok_per_s", 0), 81.4);
  EXPECT_EQ(facts.number_or("log.accept_length", 0), 2.31);
  read_log_text(
      "[2026-04-08 14:05:21 TP0] Decode batch, #running-req: 1, accept len: 2.87, gen throughput (token/s): "
      "144.95\n",
      facts);
  EXPECT_EQ(facts.number_or("log.accept_length", 0), 2.87);
  EXPECT_EQ(facts.number_or("log.tok_per_s", 0), 144.95);
  read_log_text("server_args=ServerArgs(moe_runner_backend='auto', tp_size=4)\n", facts);
  EXPECT_EQ(facts.get("log.kernel"), Value(std::string("FLASHINFER_CUTLASS")));
  read_log_text("server_args=ServerArgs(moe_runner_backend='flashinfer_cutlass', tp_size=4)\n", facts);
  EXPECT_EQ(facts.get("log.kernel"), Value(std::string("flashinfer_cutlass")));
  read_log_text(
      "I slot print_timing: id 1 | prompt eval time = 300.11 ms / 20 tokens ( 15.01 ms per token, 666.64 "
      "tokens per second)\n"
      "I slot print_timing: id 1 |        eval time = 2296.7 ms / 256 tokens ( 8.97 ms per token,   111.46 "
      "tokens per second)\n",
      facts);
  EXPECT_EQ(facts.number_or("log.tok_per_s", 0), 111.46);
}

// The lines lie across the borders of blocks, and the count must be exact.
TEST(Log, AHundredMegabytesInSeconds) {
  const Folder folder;
  const std::string path = (folder / "server.log").string();
  std::string part;
  constexpr int each = 7;
  while (part.size() < (1 << 20)) part += std::string(kOrdinary) + "\n";
  constexpr int parts = 100;
  {
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < parts; ++i) {
      file << part;
      if (i % (parts / each) == 3 && i < parts / each * each)
        for (const Dressed& dressed : kDressed) file << dressed.line << "\n" << kOrdinary << "\n";
    }
  }
  ASSERT_GE(std::filesystem::file_size(path), 100u << 20);
  Facts facts;
  const auto start = thread_cpu_time();  // it is read in one thread, and others may want the cores
  read_log(path, facts);
  EXPECT_LT(thread_cpu_time() - start, std::chrono::seconds(5));
  for (const Dressed& dressed : kDressed)
    EXPECT_EQ(facts.number_or(dressed.fact, 0),
              std::string_view(dressed.fact) == "log.skipping_tactic" ? 2 * each : each)
        << dressed.fact;
  EXPECT_THROW(read_log((folder / "nothing").string(), facts), Error);
}

TEST(WordSearch, FindsWordsInsideWords) {
  const WordSearch search({"he", "she", "hers", "his"});
  std::string found;
  search.run("ushers his",
             [&](int word, std::size_t end) { found += fourfold::format("{}@{} ", word, end); });
  EXPECT_EQ(found, "1@4 0@4 2@6 3@10 ");
}

// ---- GPU code ----

bool has_nvcc() { return std::strlen(FOURFOLD_NVCC) > 0; }

// One kernel whose name speaks of FP4, one that does not.
constexpr const char* kKernels =
    "namespace nvfp4_gemm { __global__ void blockscaled(float* p) { p[threadIdx.x] += 3.f; } }\n"
    "__global__ void scale(float* p) { p[threadIdx.x] *= 2.f; }\n"
    "void run(float* p) { nvfp4_gemm::blockscaled<<<1, 32>>>(p); scale<<<1, 32>>>(p); }\n";

bool compile(const Folder& folder, const std::string& arguments, const std::filesystem::path& out) {
  std::filesystem::create_directories(out.parent_path());
  return std::system(fourfold::format("'{}' {} -o '{}' '{}' > '{}' 2>&1", FOURFOLD_NVCC, arguments,
                                      out.string(), (folder / "kernels.cu").string(),
                                      (folder / "nvcc.txt").string())
                         .c_str()) == 0;
}

std::string images_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::string text;
  for (const KernelImage& image : images_in(std::as_bytes(std::span(bytes))))
    if (image.has_kernels) text += image_name(image) + (image.names_fp4 ? "+fp4 " : " ");
  return text;
}

// What a folder with this one cubin means on a GPU: 120a is no fault on 12.0, and does not run on 12.1.
std::string scan_verdict(double cc, const std::filesystem::path& cubin) {
  Facts facts;
  gather(*recorded_source({}), facts);
  facts.set("gpus", 1);
  facts.set("gpu.0.cc_number", cc);
  scan_kernels({cubin}, facts);
  std::string ids;
  for (const Finding& finding : judge(facts).findings)
    if (finding.rule->area == Area::kernels) ids += std::string(finding.rule->id) + " ";
  return ids;
}

void read_damaged(const std::filesystem::path& cubin) {
  std::ifstream file(cubin, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  Random random(7);
  for (int round = 0; round < 2'000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 8; ++i)  // half of them in the head
      bad[random.below(i < 4 ? 64 : bad.size())] = static_cast<char>(random.below(256));
    images_in(std::as_bytes(std::span(bad)));
  }
}

// One test, because every compilation takes a second.
TEST(Scan, ReadsEveryKindOfImageAndJudgesAFolder) {
  if (!has_nvcc()) GTEST_SKIP() << "nvcc was not found";
  const Folder folder;
  write(folder / "kernels.cu", kKernels);
  for (const char* target : {"120", "120a", "120f", "121f", "90a"}) {
    const auto cubin = folder / fourfold::format("{}.cubin", target);
    ASSERT_TRUE(compile(folder, fourfold::format("-cubin -arch=sm_{}", target), cubin)) << target;
    EXPECT_EQ(images_of(cubin), fourfold::format("sm_{}+fp4 ", target));
  }
  const auto verdict = [&](double cc, const char* target) {
    return scan_verdict(cc, folder / fourfold::format("{}.cubin", target));
  };
  for (const double cc : {12.0, 12.1}) {
    EXPECT_EQ(verdict(cc, "120"), "kernels-plain ") << cc;
    EXPECT_EQ(verdict(cc, "120a"), cc == 12.0 ? "" : "kernels-120a-on-121 ") << cc;
    EXPECT_EQ(verdict(cc, "120f"), "") << cc;
    EXPECT_EQ(verdict(cc, "90a"), "kernels-none ") << cc;
  }
  EXPECT_EQ(verdict(12.1, "121f"), "");
  EXPECT_EQ(verdict(9.0, "90a"), "");
  const auto shared = folder / "libfat.so";
  ASSERT_TRUE(
      compile(folder,
              "-shared -Xcompiler -fPIC -gencode arch=compute_120f,code=[sm_120f,compute_120f] -gencode "
              "arch=compute_121,code=sm_121",
              shared));
  EXPECT_EQ(images_of(shared), "sm_120f+fp4 compute_120f+fp4 sm_121+fp4 ");
  // Beside 120f the plain image is no fault, as in NVIDIA's own libraries.
  Facts library;
  scan_kernels({shared}, library);
  EXPECT_EQ(library.number_or("scan.sm121", 0), 1);
  EXPECT_EQ(library.number_or("scan.plain_fp4", -1), 0);
  // Half a file, or one with wrong bytes, must not be read past its end.
  std::filesystem::resize_file(shared, std::filesystem::file_size(shared) / 2);
  images_of(shared);
  read_damaged(folder / "121f.cubin");

  const auto cache = folder / "home/.cache/flashinfer/0.6.5/120a/cached_ops/fused_moe.cubin";
  std::filesystem::create_directories(cache.parent_path());
  std::filesystem::create_directories(folder / "site");
  std::filesystem::rename(folder / "120a.cubin", cache);
  std::filesystem::rename(folder / "120.cubin", folder / "site/plain.cubin");
  write(folder / "site/libtext.so", "not an object");
  const std::array<timespec, 2> march{timespec{1'772'600'000, 0}, timespec{1'772'600'000, 0}};  // 2026-03-04
  ASSERT_EQ(utimensat(AT_FDCWD, cache.c_str(), march.data(), 0), 0);
  Facts facts;
  scan_kernels({folder / "home", folder / "site"}, facts);
  EXPECT_EQ(facts.number_or("scan.files", 0), 3);
  EXPECT_EQ(facts.number_or("scan.objects", 0), 2);
  EXPECT_EQ(facts.number_or("scan.sm120a", 0), 1);
  EXPECT_EQ(facts.number_or("scan.sm120", 0), 1);
  EXPECT_EQ(facts.number_or("scan.plain_fp4", 0), 1);
  EXPECT_EQ(facts.get("scan.plain_fp4_file"), Value(std::string("plain.cubin")));
  EXPECT_EQ(facts.number_or("scan.cached_before_fix", 0), 1);
  EXPECT_EQ(facts.number_or("scan.cached_older", 0), 1);
  Facts alone;
  scan_kernels({cache}, alone);
  EXPECT_EQ(alone.number_or("scan.cached_older", -1), 0);  // no library to be older than
  EXPECT_THROW(scan_kernels({folder / "nowhere"}, facts), Error);
}

TEST(Scan, GarbageIsNoCode) {
  for (const std::string& bytes :
       {std::string(), std::string("\177ELF\2\1\1"), std::string(4096, '\xFF'),
        std::string("\x50\xED\x55\xBA\x01\x00\x10\x00\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 16)})
    EXPECT_TRUE(images_in(std::as_bytes(std::span(bytes))).empty());
}

// ---- recordings and live answers ----

TEST(Recording, KeepsAnswersAndTakesNamesOut) {
  const Names names{"beast", "anna", {"/home/anna"}};
  EXPECT_EQ(without_names("LD_LIBRARY_PATH=/home/anna/cuda:/opt/beast/lib", names),
            "LD_LIBRARY_PATH=/home/user/cuda:/opt/host/lib");
  EXPECT_EQ(without_names("root=UUID=8c3f0e1a-1b2c-4d5e-8f90-a1b2c3d4e5f6 ro", names),
            "root=UUID=00000000-0000-0000-0000-000000000000 ro");
  EXPECT_EQ(without_names("Linux (anna@beast-7) beasts d8:5e:d3:01:ab:cd", names),
            "Linux (user@host) beasts 00:00:00:00:00:00");
  EXPECT_EQ(without_names("0000:01:00.0 0x2b85 nvidia", names), "0000:01:00.0 0x2b85 nvidia");

  Recording recording;
  recording.answers = {
      {"nvml 0 name", "NVIDIA GB10"}, {"environment", "A=1\nB=2\n"}, {"file /.dockerenv", ""}};
  recording.facts.set("log.given", true);
  const Recording again = parse_recording(recording_text(recording), "again");
  EXPECT_EQ(again.answers, recording.answers);
  EXPECT_EQ(again.facts.all(), recording.facts.all());
  EXPECT_THROW(parse_recording("| astray\n", "x"), Error);
  EXPECT_THROW(parse_recording("fact log.given\n", "x"), Error);
}

// What a live machine answers and what its recording answers lead to the same facts.
TEST(Recording, OfThisMachineJudgesTheSame) {
  const auto live = live_source();
  Recording recording;
  Facts here, there;
  gather(*recorder(*live, recording), here);
  gather(*recorded_source(parse_recording(recording_text(recording), "here")), there);
  for (const auto& [name, value] : here.all()) {
    if (name.starts_with("env.")) continue;  // may hold names, which are taken out
    EXPECT_EQ(there.get(name), value) << name;
  }
  EXPECT_FALSE(std::holds_alternative<Unknown>(here.get("cores")));
}

TEST(Source, SecretsAreNoSettings) {
  for (const char* name :
       {"NCCL_P2P_DISABLE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST"})
    EXPECT_TRUE(is_known_variable(name)) << name;
  for (const char* name :
       {"VLLM_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "HOME", "SGLANG_ADMIN_PASSWORD"})
    EXPECT_FALSE(is_known_variable(name)) << name;
}

TEST(Source, ServersAndTheirOptions) {
  EXPECT_EQ(server_line({"/usr/bin/python3", "/opt/venv/bin/vllm", "serve", "model", "--api-key", "x",
                         "--moe-backend", "marlin", "--tensor-parallel-size=4"}),
            "vllm --moe-backend marlin --tensor-parallel-size 4");
  EXPECT_EQ(server_line({"python3", "-m", "sglang.launch_server", "--tp-size", "2"}), "sglang --tp-size 2");
  EXPECT_EQ(server_line({"python3.12", "-u", "-X", "dev", "-m", "vllm.entrypoints.openai.api_server"}),
            "vllm");
  EXPECT_EQ(server_line({"/opt/bin/fourfold", "--strict", "serve", "model", "--kv-cache-dtype", "fp8"}),
            "fourfold --kv-cache-dtype fp8");
  EXPECT_EQ(server_line({"llama-server", "-m", "model.gguf"}), "llama-server");
}

// The doctor does not measure beside a server, so what is none must not be taken for one.
TEST(Source, NamesOfServersAreNoServers) {
  const std::vector<std::vector<std::string>> none{
      {},
      {"/usr/bin/vim", "notes-about-vllm"},
      {"/usr/bin/vim", "vllm"},
      {"build/fourfold", "doctor"},
      {"build/fourfold", "bench", "model"},
      {"timeout", "60", "build/fourfold", "doctor"},
      {"ninja", "-C", "build", "fourfold"},
      {"git", "clone", "vllm"},
      {"vllm", "bench", "serve"},
      {"python3", "-m", "pip", "install", "vllm"},
      {"python3", "-c", "import vllm", "serve"},
      {"python3", "-m"},
  };
  for (const auto& arguments : none)
    EXPECT_EQ(server_line(arguments), std::nullopt) << (arguments.empty() ? "" : arguments.back());
}

TEST(Source, AcsControlIsFoundInTheChain) {
  std::string config(4096, '\0');
  const auto put = [&](std::size_t at, std::uint32_t word) { std::memcpy(config.data() + at, &word, 4); };
  put(0x100, 0x0001 | 1 << 16 | 0x148u << 20);  // another capability first
  put(0x148, 0x000D | 1 << 16);
  put(0x14C, 0x001Du << 16 | 0x005F);  // control above capability
  EXPECT_EQ(acs_control(config), "001d");
  put(0x148, 0x0002 | 1 << 16 | 0x100u << 20);  // a circle ends
  EXPECT_EQ(acs_control(config), std::nullopt);
  EXPECT_EQ(acs_control(config.substr(0, 64)), std::nullopt);  // what a user without rights sees
}

// The library is loaded before anybody asks for it by name, so its answers are this stand-in's.
TEST(Nvml, IsAskedByItsOwnInterface) {
  if (dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr)
    GTEST_SKIP() << "the driver's own is loaded";
  ASSERT_NE(dlopen(FOURFOLD_FAKE_NVML, RTLD_NOW), nullptr) << dlerror();
  NvidiaLibraries libraries;
  const auto ask = [&](const char* question) {
    return libraries.ask_nvml(split(question, ' ')).value_or("-");
  };
  struct Expected {
    const char *question, *answer;
  };
  for (const Expected& expected :
       std::initializer_list<Expected>{{"error", "none"},
                                       {"driver", "595.58.03"},
                                       {"cuda", "13.2"},
                                       {"count", "2"},
                                       {"0 name", "NVIDIA GeForce RTX 5090"},
                                       {"0 cc", "12.0"},
                                       {"0 memory", "32607 1000"},
                                       {"0 bar1", "256"},
                                       {"0 ecc", "on"},
                                       {"0 mig", "-"},
                                       {"0 persistence", "on"},
                                       {"0 power", "400 575 600 12"},
                                       {"0 clocks", "180 3090 405 14001"},
                                       {"0 throttle", "power_cap,hardware_thermal"},
                                       {"0 temperature", "61 -"},
                                       {"0 pcie", "1 5 - 8 16"},
                                       {"0 utilization", "7"},
                                       {"0 pci", "0000:0a:00.0"},
                                       {"0 processes", "2 300"},
                                       {"0 1 p2p", "disabled by regkey"},
                                       {"0 1 nvlink", "no"},
                                       {"0 1 topology", "hostbridge"},
                                       {"1 memory", "-"},
                                       {"1 ecc", "-"},
                                       {"1 power", "-"},
                                       {"1 clocks", "- - - -"},
                                       {"1 throttle", "none"},
                                       {"1 pcie", "-"},
                                       {"0 serial", "-"},
                                       {"x name", "-"}})
    EXPECT_EQ(ask(expected.question), expected.answer) << expected.question;
  // And all the way to a verdict.
  Facts facts;
  gather(*live_source(), facts);
  std::string ids;
  for (const Finding& finding : judge(facts).findings)
    if (finding.rule->area == Area::gpu) ids += std::string(finding.rule->id) + " ";
  EXPECT_EQ(ids, "power-cap throttle-heat pcie-lanes gpu-ecc resizable-bar ");
}

TEST(Probes, ListsAndVersions) {
  EXPECT_EQ(parse_cpu_list("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_TRUE(parse_cpu_list("x-3").empty());
  EXPECT_EQ(version_code("595.58.03"), 59'558);
  EXPECT_EQ(version_code("13.0"), 1'300);
  EXPECT_EQ(version_code("none"), 0);
}

}  // namespace
}  // namespace fourfold::doctor
