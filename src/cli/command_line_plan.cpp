// The command lines of `fourfold plan` and `fourfold verify`: what can be known without a model.
#include <CLI/CLI.hpp>

#include "cli/command_line.h"
#include "cli/command_line_seed.h"

namespace fourfold::cli {
namespace {

void add_plan_step(CLI::App& command, PlanModelOptions& m, CLI::Option* model, CLI::Option* gpu) {
  command.add_option("--tp", m.ranks, "Of --model: GPUs that share it")->capture_default_str()->needs(model);
  command.add_option("--experts", m.experts, "Of --tp: a part of each (tp), some of them (ep), or auto")
      ->capture_default_str()
      ->needs(model);
  command
      .add_option("--nodes", m.nodes,
                  "Of --model: machines with a rank each, and what their sums take on --link")
      ->needs(model);
  command
      .add_option("--link", m.link, "Of --gpu: pcie5 or pcie4 between GPUs; of --nodes: 10gbe, 25gbe or cx7")
      ->capture_default_str()
      ->needs(model);
  command.add_option("--users", m.users, "Of --gpu: sequences in the predicted step")
      ->capture_default_str()
      ->needs(gpu);
  command.add_option("--context", m.context, "Of --gpu: tokens of each before it")
      ->capture_default_str()
      ->needs(gpu);
  command.add_option("--mtp", m.drafts, "Of --gpu: drafts a step")->capture_default_str()->needs(gpu);
  command.add_option("--acceptance,--accept", m.acceptance, "Of --mtp: chance that a draft stands")
      ->capture_default_str()
      ->needs(gpu);
  CLI::Option* predict = command.add_flag(
      "--predict", m.predict, "Of --gpu: a step kernel row by kernel row, by a model checked on the H200");
  predict->needs(model);
  command.add_option("--prompt", m.prompt, "Of --predict: tokens of a prompt, too")->needs(predict);
}

}  // namespace

void add_plan(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand(
      "plan", "What fits on a GPU: a model, a kernel's rows and their bytes, one tile explained");
  PlanOptions& o = line.plan;
  command->add_option("--arch", o.archs, "Architectures, commas between them")->capture_default_str();
  command->add_flag("--json", o.json, "JSON instead of text");
  command->add_option("--explain", o.explain, "Walk the bytes of one tile, MxNxK in elements: 256x128x128");
  command->add_flag("--picture", o.picture, "Also draw the best known overflow");
  command->add_flag("--choose", o.choose,
                    "Which rows a layer (--shape) or a matrix (--matrix) runs with; needs --tokens");
  command->add_option("--shape", o.shape, "35b, 122b, 397b, 397b-tp4 or H,I,E,k");
  command
      ->add_option(
          "--matrix", o.matrix,
          "Of --choose, in place of --shape: a dense NVFP4 matrix of so many columns that has an input "
          "scale, or with --activations w8a8 one in FP8")
      ->excludes("--shape");
  command->add_option("--tokens", o.tokens, "Token counts, commas between them");
  command
      ->add_option("--activations", o.activations,
                   "auto (as a model is served), w4a16 or w4a4; of --matrix also w8a8: fp8 weights, prompts")
      ->capture_default_str();
  command->add_option("--format", o.format, "nvfp4 or mxfp4")->capture_default_str();
  command->add_option("--role", o.role, "decode, prefill or both")->capture_default_str();
  PlanModelOptions& m = line.plan_model;
  CLI::Option* model =
      command->add_option("--model", m.model,
                          "What this MODEL (or a shape: 397b, 122b, 35b) takes of a GPU's memory, "
                          "and what fits");
  for (const char* other : {"--explain", "--choose", "--picture", "--shape", "--matrix", "--tokens"})
    model->excludes(other);
  CLI::Option* gpu = command
                         ->add_option("--gpu", m.gpu,
                                      "Of --model: a card that need not be here (rtx-pro-6000); also what a "
                                      "step would take there")
                         ->needs(model);
  add_plan_step(*command, m, model, gpu);
  command->add_option("--kv", m.kv, "Of --model: keys and values in bf16, fp8 or auto")
      ->capture_default_str()
      ->needs(model);
  command->add_option("--dense", m.dense, "Of --model: 16-bit matrices as keep, fp8 or nvfp4")
      ->capture_default_str()
      ->needs(model);
  command->add_option("--max-context", m.max_context, "Of --model: tokens of a sequence (the model's limit)")
      ->needs(model);
  command->add_option("--max-sequences", m.max_sequences, "Of --model: sequences at once")
      ->capture_default_str()
      ->needs(model);
  command
      ->add_option("--memory-fraction", m.memory_fraction,
                   "Of --model: of the GPU's memory, what may be used (0.95)")
      ->needs(model);
  command
      ->add_option("--memory-gb", m.memory_gb,
                   "Of --model: memory of a GPU that is not here, as sold: 32 is 32 GiB")
      ->needs(model);
  command->final_callback([&line, command] {
    line.run = [&line, command](const Console& console) {
      line.plan.strict = line.plan_model.strict = line.strict;
      if (line.plan_model.model.empty()) return run_plan(line.plan, console);
      line.plan_model.json = line.plan.json;
      line.plan_model.activations = line.plan.activations;
      if (command->count("--arch") > 0) line.plan_model.arch = line.plan.archs;
      return run_plan_model(line.plan_model, console);
    };
  });
}

void add_verify(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("verify", "Prove every row of every kernel against the scalar reference");
  VerifyOptions& o = line.verify;
  command->add_option("--device", o.device, "sim, cuda or all")->capture_default_str();
  command->add_flag("--quick", o.quick, "One operation a row, one seed");
  command->add_flag("--large", o.large, "The shapes of published models, 1 to 8,192 tokens (--device cuda)");
  command->add_flag("--json", o.json, "JSON instead of the table");
  command->add_option("--report", o.report, "Also write the JSON to this file");
  command->add_option("--seeds", o.seeds, "Proofs of each row and operation (4)");
  add_seed(*command, o.seed, "Repeat the run that printed this seed");
  command->add_option("--rows", o.rows, "Only rows or kernels that match: 'moe_stream*w4a4*'");
  command->add_option("--gpu", o.gpu, "Which GPU")->capture_default_str();
  command->final_callback([&line] {
    line.run = [&line](const Console& console) {
      line.verify.strict = line.strict;
      return run_verify(line.verify, console);
    };
  });
}

}  // namespace fourfold::cli
