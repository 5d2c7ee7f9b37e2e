#include "verify/custom.h"

namespace attnjit::verify {

Result<std::shared_ptr<const CustomFunction>> make_custom_function(const CustomCode& code, bool,
                                                                   const Problem&) {
  return make_error(ErrorCode::kUnsupported, "custom code: not in this build", code.name);
}

}  // namespace attnjit::verify
