#include "server/api/form_cache.h"

#include "base/error.h"

namespace fourfold::server::api {

std::shared_ptr<const constrain::Masks> FormCache::get(const std::string& key, const Compile& compile) {
  {
    const std::lock_guard lock(mutex_);
    for (auto at = forms_.begin(); at != forms_.end(); ++at) {
      if (at->first != key) continue;
      forms_.splice(forms_.begin(), forms_, at);
      forget_oldest();
      return at->second;
    }
  }
  // Compiling takes long enough that nobody else should wait; two who ask at once both do it.
  auto masks = std::make_shared<const constrain::Masks>(vocabulary_, compile());
  masks->warm_up();
  const std::lock_guard lock(mutex_);
  forms_.emplace_front(key, masks);
  forget_oldest();
  return masks;
}

// Forms grow while answers are written by them, so all are counted anew.
void FormCache::forget_oldest() {
  std::size_t bytes = 0;
  for (const auto& [key, masks] : forms_) bytes += key.size() + masks->bytes();
  while (forms_.size() > kFormsMax || (forms_.size() > 1 && bytes > bytes_max_)) {
    bytes -= forms_.back().first.size() + forms_.back().second->bytes();
    forms_.pop_back();
  }
}

void prepare_forms(ServedModel& model) {
  try {
    model.forms = std::make_shared<FormCache>(
        std::make_shared<const constrain::Vocabulary>(model.tokenizer, model.stop_ids, model.token_limit));
  } catch (const Error& error) {
    if (error.code() != Code::unsupported_model) throw;
    model.forms = nullptr;
  }
}

}  // namespace fourfold::server::api
