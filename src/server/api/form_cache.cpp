#include "server/api/form_cache.h"

#include "base/error.h"

namespace fourfold::server::api {

std::shared_ptr<const constrain::Masks> FormCache::get(const Asked& asked, const std::string& form,
                                                       const Compile& compile) {
  const std::string key = fourfold::format("{}:{}", asked.tenant, form);
  if (auto known = find(key)) return known;
  // Compiling takes long enough that nobody else should wait; two who ask at once both do it.
  auto masks = make(asked.tenant, compile);
  masks->warm_up();
  const std::lock_guard lock(mutex_);
  forms_.emplace_front(key, masks);
  forget_oldest();
  return masks;
}

std::shared_ptr<const constrain::Masks> FormCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  for (auto at = forms_.begin(); at != forms_.end(); ++at) {
    if (at->first != key) continue;
    forms_.splice(forms_.begin(), forms_, at);
    forget_oldest();
    return at->second;
  }
  return nullptr;
}

// Forms that are only kept make room for one that is asked for now.
std::shared_ptr<const constrain::Masks> FormCache::make(std::uint64_t tenant, const Compile& compile) {
  const std::shared_ptr<const constrain::Grammar> grammar = compile();
  const std::shared_ptr<constrain::FormBytes> memory = share_of(tenant);
  while (true) {
    try {
      return std::make_shared<const constrain::Masks>(vocabulary_, grammar, memory);
    } catch (const Error& error) {
      if (error.code() != Code::over_capacity || !forget_unused()) throw;
    }
  }
}

// Without keys everybody is tenant 0, who has everything.
std::shared_ptr<constrain::FormBytes> FormCache::share_of(std::uint64_t tenant) {
  if (tenant == 0) return memory_;
  const std::lock_guard lock(mutex_);
  auto& share = shares_[tenant];
  if (!share) share = std::make_shared<constrain::FormBytes>(memory_->max() / 2, memory_);
  return share;
}

bool FormCache::forget_unused() {
  const std::lock_guard lock(mutex_);
  for (auto at = forms_.end(); at != forms_.begin();)
    if ((--at)->second.use_count() == 1) {
      forms_.erase(at);
      return true;
    }
  return false;
}

// Forms grow while answers are written by them, so all are counted anew.
void FormCache::forget_oldest() {
  std::size_t bytes = 0;
  for (const auto& [key, masks] : forms_) bytes += key.size() + masks->bytes();
  while (forms_.size() > kFormsMax || (forms_.size() > 1 && bytes > kept_max_)) {
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
