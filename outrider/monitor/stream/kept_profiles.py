from outrider.dataops.ledger.stored_profiles import KeptProfiles
from outrider.monitor.settings.sections import StorageSettings


def kept_profiles(storage: StorageSettings) -> KeptProfiles:
    return KeptProfiles(
        minutes_s=storage.keep_minute_profiles_hours * 3600,
        hours_s=storage.keep_hour_profiles_days * 86_400,
        days_s=storage.keep_day_profiles_days * 86_400,
    )
