// Forms that requests ask for, compiled once: schemas, expressions, calls of tools. Any thread may ask; the
// forms asked for last are kept.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "constrain/guide.h"
#include "server/served_model.h"

namespace fourfold::server::api {

class FormCache {
 public:
  explicit FormCache(std::shared_ptr<const constrain::Vocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)) {}

  using Compile = std::function<std::shared_ptr<const constrain::Grammar>()>;
  // `key` names the form; equal keys are equal forms. Throws what compile throws.
  std::shared_ptr<const constrain::Masks> get(const std::string& key, const Compile& compile);

 private:
  static constexpr std::size_t kFormsMax = 32;

  std::shared_ptr<const constrain::Vocabulary> vocabulary_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const constrain::Masks>>> forms_;  // the newest first
};

// Gives the model its forms. One whose tokens cannot write every text stays without, and answers that must
// have a form are refused.
void prepare_forms(ServedModel& model);

}  // namespace fourfold::server::api
