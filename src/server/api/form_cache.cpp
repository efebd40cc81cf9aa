#include "server/api/form_cache.h"

namespace fourfold::server::api {

std::shared_ptr<const constrain::Masks> FormCache::get(const std::string& key, const Compile& compile) {
  {
    const std::lock_guard lock(mutex_);
    for (auto at = forms_.begin(); at != forms_.end(); ++at) {
      if (at->first != key) continue;
      forms_.splice(forms_.begin(), forms_, at);
      return at->second;
    }
  }
  // Compiling takes long enough that nobody else should wait; two who ask at once both do it.
  auto masks = std::make_shared<const constrain::Masks>(vocabulary_, compile());
  masks->warm_up();
  const std::lock_guard lock(mutex_);
  forms_.emplace_front(key, masks);
  if (forms_.size() > kFormsMax) forms_.pop_back();
  return masks;
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
