-- Why a refresh was done as it was; null where there was no choice.
alter table attempt add column strategy_reason text;
